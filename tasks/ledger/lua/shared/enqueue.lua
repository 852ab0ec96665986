-- Tasks that come in: stored whole, by SUBMIT or as successors of others, with a change of a record.
-- uses: accounts turns wakeup
local TASK_BYTES = 1024      -- keys and counts of a task, beside its payload and its vectors

local function measure(at, units)       -- of so many units from ARGV[at] on: their items, cost and bytes
  local total, cost, bytes = 0, 0, 0
  for i = at, at + 3 * units - 1, 3 do
    total, cost, bytes = total + tonumber(ARGV[i]), cost + tonumber(ARGV[i + 1]), bytes + #ARGV[i + 2]
  end
  return total, cost, bytes
end
local function room_for(total, vector_bytes)  -- which the vectors of so many items may need
  return vector_bytes > 0 and total * vector_bytes + TASK_BYTES or 0
end
-- t: id lane owner ttl options meta alias digest listed wakes trace answer deadline_in, and of its units (ARGV[at]:
-- items, cost and payload of the first one) units at total cost bytes reserve; turn as of enter_lane. `write` does the
-- first write. A full Redis refuses that one, before anything has changed; what it said is returned. The caller writes the
-- sums.
local function store_task(t, write)
  local id, lane, owner = t.id, t.lane, t.owner
  local f = {'q', QUEUE, 'lane', lane, 'owner', owner, 'state', 'queued', 'total', int(t.total), 'completed', 0,
    'failed', 0, 'units', int(t.units), 'next', 0, 'back', 0, 'cost', int(t.cost), 'bytes', int(t.bytes),
    'reserve', int(t.reserve), 'held', int(t.bytes + t.reserve), 'created', int(NOW), 'ttl', int(t.ttl), 'tokens', 0}
  local function set(given, name, value)
    if given then f[#f + 1] = name; f[#f + 1] = value end
  end
  local ends = t.deadline_in > 0
  set(t.options ~= '', 'options', t.options)
  set(t.wakes, 'wakes', 1)
  set(t.trace ~= '', 'trace', t.trace)
  set(t.answer ~= '', 'answer', t.answer)
  set(t.listed, 'listed', 1)
  set(t.meta ~= '', 'meta', 1)
  set(ends, 'deadline', int(NOW + t.deadline_in))
  set(t.alias ~= '', 'alias', t.alias)
  local stored = write('HSET', task_key(id), unpack(f))
  if type(stored) == 'table' and stored.err then return stored.err end
  if t.listed then
    call('ZADD', tasks_key(owner), 0, id)
    if call('INCR', open_key(owner)) == 1 then call('PERSIST', tasks_key(owner)) end
    -- Tasks expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
    for _, other in ipairs(call('ZRANDMEMBER', tasks_key(owner), -2)) do
      if call('EXISTS', task_key(other)) == 0 then call('ZREM', tasks_key(owner), other) end
    end
  end
  if t.meta ~= '' then call('SET', meta_key(id), t.meta) end
  if ends then call('ZADD', DEADLINES, int(NOW + t.deadline_in), id) end
  if t.alias ~= '' then
    local key, entry = alias_key(owner, t.alias), id .. ' ' .. t.digest
    -- Of a task that somebody waits for the alias saves work and promises nothing: it gets its TTL now, and not at the end.
    if ends and not t.listed then call('SET', key, entry, 'PX', int(t.deadline_in + t.ttl))
    else call('SET', key, entry) end
  end
  local units, first = {}, 0
  for i = 0, t.units - 1 do
    local at = t.at + 3 * i
    local items = tonumber(ARGV[at])
    units[#units + 1] = 'u' .. int(i)
    units[#units + 1] = unit_text({first = first, items = items, cost = tonumber(ARGV[at + 1]), attempts = 0,
      root = int(i), offset = 0, token = '-'})
    units[#units + 1] = 'p' .. int(i)
    units[#units + 1] = ARGV[at + 2]
    if #units >= 1000 or i == t.units - 1 then  -- unpack fails above about 8,000
      call('HSET', units_key(id), unpack(units))
      units = {}
    end
    first = first + items
  end
  owe(lane, owner, t.cost)
  count_open(lane, owner, 1, t.bytes)
  add(HELD, owner, t.bytes + t.reserve)
  reserved = reserved + t.reserve
  enter_lane(id, lane, owner, tonumber(ARGV[t.at + 1]), t.turn)
end
-- Successors: tasks of work that was let in long ago, so they are not judged again. They are named from ARGV[at] on,
-- for each: JSON {id queue lane owner ttl options vector_bytes wakes trace}, number of units, then per unit items cost payload.
-- Each is stored in its own queue, unless it is there. Returns the queues for which a bell is due. The script's queue is then
-- that of the last one.
local function enqueue(at)
  local bells = {}
  while ARGV[at] do
    local t = cjson.decode(ARGV[at])
    t.units, t.at = tonumber(ARGV[at + 1]), at + 2
    use_queue(t.queue)
    if call('EXISTS', task_key(t.id)) == 0 then
      t.total, t.cost, t.bytes = measure(t.at, t.units)
      t.reserve, t.meta, t.alias, t.answer, t.deadline_in = room_for(t.total, t.vector_bytes), '', '', '', 0
      store_task(t, call)
      write_sums()
    end
    if ready() > 0 and wake() == 1 then bells[#bells + 1] = t.queue end
    at = at + 2 + 3 * t.units
  end
  return bells
end
