-- The end of tasks, and what is told of them.
-- uses: task_record
local ended, due, wakes_driver = {}, {}, false
local garbage, due_no_more, counts = {}, {}, {}
local PIECES_A_LOOK = 64                -- of ended tasks, which cost as much as one task more
local function count(in_queue, name, n) -- totals of a queue for metrics, written by announce()
  if n == 0 then return end
  local of = counts[in_queue] or {}
  counts[in_queue], of[name] = of, (of[name] or 0) + n
end
local function finish(x, state, why)    -- the caller has taken it out of the sums, and puts it in again. why: if not the state
  local t = x.t
  t[STATE], t[FINISHED], t[BACK] = state, NOW, ''
  due[#due + 1], due[#due + 2] = NOW + t[TTL], 'task:' .. x.id  -- it is forgotten then, by housekeeping
  ended[x.id] = true
  wakes_driver = wakes_driver or t[WAKES] == 1
  -- Workers count what completes; how long it took they learn from COMMIT.
  if why or state ~= 'completed' then count(t[IN_QUEUE], 'ended_' .. t[LANE] .. '_' .. (why or state), 1) end
  if t[COMPLETED] + t[FAILED] == 0 then -- nothing of it is kept but its metadata
    local meta = call('HGET', task_key(x.id), 'm')
    call('UNLINK', task_key(x.id))
    if meta then put(x, 'm', meta) end
  elseif t[SPLIT] == 1 or t[COMPLETED] + t[FAILED] < t[TOTAL] or why then  -- payloads are left; O(pieces)
    for _, field in ipairs(call('HKEYS', task_key(x.id))) do
      if string.find(field, '^[ud]') then x.gone[#x.gone + 1] = field end
      if #x.gone == 4000 then
        call('HDEL', task_key(x.id), unpack(x.gone))
        x.gone = {}
      end
    end
  end
end
local function end_task(x, why)         -- cancelled, expired, model_changed
  local t, state = x.t, why
  tally(t, -1)
  if why == 'model_changed' then        -- the vectors it has (there are some) are good; its other items have failed
    count(t[IN_QUEUE], 'items_' .. t[LANE] .. '_failed', t[TOTAL] - t[COMPLETED] - t[FAILED])
    t[FAILED], state = t[TOTAL] - t[COMPLETED], 'completed'
  end
  call('ZREM', lane_key(t), x.id)
  finish(x, state, why)
  tally(t, 1)
  save_task(x)
end
local function forget(x, id)            -- an ended task: every trace of it goes
  local t = x.t
  tally(t, -1)
  if t[LISTED] == 1 then call('ZREM', R .. ':index:task:' .. t[OWNER], id) end
  if t[ALIAS] ~= '' and (t[LISTED] == 1 or t[DEADLINE] == 0) then  -- others end by themselves, soon
    local alias = R .. ':alias:' .. t[OWNER] .. ':' .. t[ALIAS]
    if string.match(call('GET', alias) or '', '^%S+') == id then call('UNLINK', alias) end
  end
  garbage[#garbage + 1], due_no_more[#due_no_more + 1] = task_key(id), 'task:' .. id
  tasks[id] = false
end
-- For the end of scripts, once. One message for everybody: ids of those that have ended.
local function announce()
  if #due > 0 then call('ZADD', DUE, unpack(due)) end
  if #garbage > 0 then
    call('UNLINK', unpack(garbage))
    call('ZREM', DUE, unpack(due_no_more))
  end
  for in_queue, names in pairs(counts) do
    for name, n in pairs(names) do call('HINCRBY', R .. ':q:' .. in_queue .. ':counts', name, n) end
  end
  local ids = {}
  for id in pairs(ended) do ids[#ids + 1] = id end
  if #ids > 0 then call('PUBLISH', R .. ':ended', table.concat(ids, ' ')) end
  if wakes_driver then call('PUBLISH', R .. ':jobs', 'job') end
end
