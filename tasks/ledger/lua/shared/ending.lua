-- The end of tasks and of units: what was settled of them, and what becomes of a task that has ended.
-- uses: accounts turns

-- How tasks ended. Of those that completed, how long it took from their acceptance, as a histogram: of the bounds of
-- 2^k ms the lowest that fits. ../../overview.py reads it.
local LOWEST, HIGHEST = 2, 27  -- 4 ms and 37 h; what took longer is counted one above
local function note_end(lane, state, took_ms)
  if state ~= 'completed' then return tally('ended_' .. lane .. '_' .. state, 1) end
  local _, k = math.frexp(math.max(took_ms - 1, 0))
  tally('took_' .. lane .. '_' .. math.min(math.max(k, LOWEST), HIGHEST + 1), 1)
  tally('took_' .. lane .. '_ms', math.max(took_ms, 0))
end
local function count_items(lane, ok, failed)
  if ok > 0 then tally('items_' .. lane .. '_completed', ok) end
  if failed > 0 then tally('items_' .. lane .. '_failed', failed) end
end

-- Keys and deadlines of tasks that have ended go together, however many there are.
local garbage, due_no_more = {}, {}
local function write_ends()
  if #garbage > 0 then call('UNLINK', unpack(garbage)) end  -- three for each task of a claim, which has at most 1,000
  if #due_no_more > 0 then call('ZREM', DEADLINES, unpack(due_no_more)) end
  garbage, due_no_more = {}, {}
  write_sums()
end

-- t: lane, owner, ttl, cost (what is left), bytes, reserve (what is left), held, alias, deadline, listed, meta, wakes,
-- created. changes: what else is to be written of the task, a flat list. Constant work, whatever the task's size.
local function finish(id, state, t, changes)
  local kept = t.held - t.bytes - t.reserve
  t.state = state
  call('HSET', task_key(id), 'state', state, 'finished', int(NOW), 'held', int(kept), unpack(changes))
  if t.deadline then due_no_more[#due_no_more + 1] = id end
  for _, key in ipairs({units_key(id), back_key(id), suspects_key(id)}) do garbage[#garbage + 1] = key end
  call('PEXPIRE', task_key(id), t.ttl)
  call('PEXPIRE', result_key(id), t.ttl)
  if t.meta then call('PEXPIRE', meta_key(id), t.ttl) end
  local alias = t.alias and (t.listed or not t.deadline) and alias_of(id, t.owner, t.alias)  -- others have a TTL already
  if alias then call('PEXPIRE', alias, t.ttl) end
  if t.listed and call('DECR', open_key(t.owner)) <= 0 then
    call('DEL', open_key(t.owner))
    call('PEXPIRE', tasks_key(t.owner), t.ttl)
  end
  owe(t.lane, t.owner, 0 - t.cost)
  count_open(t.lane, t.owner, -1, 0 - t.bytes)
  reserved = reserved - t.reserve
  add(HELD, t.owner, 0 - t.held)
  keep_results(t.owner, kept, t.ttl)
  ended_ids[#ended_ids + 1] = id
  note_end(t.lane, state, NOW - t.created)
  if t.wakes then wake_steps() end
end
local function end_task(id, state)      -- cancel, deadline, another model; false when it is not open
  local f = call('HMGET', task_key(id), 'state', 'lane', 'owner', 'ttl', 'cost', 'bytes', 'alias', 'reserve', 'listed',
    'held', 'completed', 'failed', 'total', 'wakes', 'created', 'deadline', 'meta')
  if not f[1] or not OPEN[f[1]] then return false end
  local changes = {}
  if state == 'model_changed' then      -- the vectors it has are good; its other items have failed
    local failed = tonumber(f[13]) - tonumber(f[11])
    changes = {'failed', int(failed), 'ended_by', state}
    count('failed_items', failed - tonumber(f[12]))
    count_items(f[2], 0, failed - tonumber(f[12]))
    state = tonumber(f[11]) > 0 and 'completed' or 'failed'
  end
  leave_lane(id, f[2], f[3])
  if call('EXISTS', suspects_key(id)) == 1 then leave_lane(id, 'suspects', f[3]) end
  finish(id, state, {lane = f[2], owner = f[3], ttl = f[4], cost = tonumber(f[5]), bytes = tonumber(f[6]), alias = f[7],
    deadline = f[16], reserve = tonumber(f[8] or 0), listed = f[9], held = tonumber(f[10]), wakes = f[14],
    created = tonumber(f[15]), meta = f[17]}, changes)
  write_ends()
  return true
end

-- Units that ended are gathered per task, so that a task is read and written once however many of its units ended.
local settling = {}
local function settle(id, ok, failed, cost, tokens)  -- returns what is gathered: its `units` go, its `outcomes` are stored
  local t = settling[id]
  if not t then
    local f = call('HMGET', task_key(id), 'completed', 'failed', 'cost', 'total', 'lane', 'ttl', 'deadline', 'owner',
      'tokens', 'bytes', 'alias', 'reserve', 'listed', 'held', 'wakes', 'created', 'meta', 'answer', 'started',
      'options', 'trace')
    t = {ok = tonumber(f[1]), failed = tonumber(f[2]), cost = tonumber(f[3]), total = tonumber(f[4]), lane = f[5],
      ttl = f[6], deadline = f[7], owner = f[8], tokens = tonumber(f[9]), bytes = tonumber(f[10]), alias = f[11],
      reserve = tonumber(f[12] or 0), listed = f[13], held = tonumber(f[14]), wakes = f[15],
      created = tonumber(f[16]), meta = f[17], answer = f[18], started = f[19], options = f[20], trace = f[21], spent = 0, ended = 0, units = {}, outcomes = {}}
    settling[id] = t
  end
  t.ok, t.failed, t.cost, t.tokens = t.ok + ok, t.failed + failed, t.cost - cost, t.tokens + tokens
  t.spent, t.ended, t.made = t.spent + cost, t.ended + ok + failed, t.made or ok > 0
  count_items(t.lane, ok, failed)
  return t
end
local function settled()
  local serves
  for id, t in pairs(settling) do
    local over = t.ok + t.failed >= t.total
    local changes = {'completed', int(t.ok), 'failed', int(t.failed), 'cost', int(t.cost), 'tokens', int(t.tokens)}
    local function change(name, value) changes[#changes + 1] = name; changes[#changes + 1] = value end
    if t.reserve > 0 then               -- what has its vector needs no more room than it has
      local left = t.total - t.ok - t.failed
      local reserve = math.floor(t.reserve * left / (left + t.ended))
      change('reserve', int(reserve))
      reserved = reserved - t.reserve + reserve
      t.reserve = reserve
    end
    owe(t.lane, t.owner, 0 - t.spent)
    if #t.outcomes > 0 then call('HSET', result_key(id), unpack(t.outcomes)) end
    if over then finish(id, t.ok > 0 and 'completed' or 'failed', t, changes)
    else
      if #t.units > 0 then call('HDEL', units_key(id), unpack(t.units)) end
      if t.made then                    -- what comes later must be of the same model
        if serves == nil then serves = served() end
        if serves then change('made_by', serves) end
      end
      call('HSET', task_key(id), unpack(changes))
    end
  end
  settling = {}
  write_ends()
end
