-- Admission: whether a task may wait, and if not, after how many seconds there may be room for it (Retry-After).
-- uses: accounts turns
local LOOK = 256            -- at so many tasks or entries at most, and only before a refusal
local LOOK_AHEAD = 64       -- at so many more, for the time that is told
local CROWDED_S = 1         -- of work: a larger task is refused when its lane holds twice the limit
local NEVER_S = 1e6

-- What waits in the queue now, as far as a task of this lane and owner is concerned.
local function queued_beside(lane, owner, default_rate)
  local s = call('HMGET', S, 'cost_' .. lane, 'rate', 'bytes', 'cost_' .. lane .. ':' .. owner,
    'tasks_' .. lane .. ':' .. owner, 'owners_' .. lane, 'bytes:' .. owner, 'cost_online', 'cost_bulk',
    turn_fields(lane, owner))
  local function number(i) return tonumber(s[i] or 0) end
  local all, tasks = number(1), number(5)
  return {lane = lane, owner = owner, all = all, mine = number(4), tasks = tasks,
    others = number(6) - (tasks > 0 and 1 or 0), rate = tonumber(s[2] or default_rate), bytes = number(3),
    my_bytes = number(7), cost = number(8) + number(9), turn = {s[10], s[11], s[12]}}
end
local function one_more_beside(q, cost, bytes, held)  -- the same, when another task of this owner has come in
  q.mine, q.all, q.cost, q.tasks = q.mine + cost, q.all + cost, q.cost + cost, q.tasks + 1
  q.bytes, q.my_bytes, q.held = q.bytes + bytes, q.my_bytes + bytes, q.held and q.held + held
end

-- A task is judged by the work that is served before its own end, not by all that is queued: tasks of one owner take
-- turns by cost, so each of them gets no more than this one before it ends, and so do owners. An owner with nothing
-- queued may bring any one task; otherwise it would never run.
-- Tasks that come ever smaller would find ever less work before them, however much there is: what one owner brings adds
-- up. So a lane that holds twice the limit takes no task of more than CROWDED_S from an owner who has its share.
local function crowded(q, cost, limit_cost)  -- estimated tokens until that lets it in
  local over = q.all - 2 * limit_cost
  if q.mine <= 0 or over <= 0 or cost <= CROWDED_S * q.rate then return 0 end
  return math.min(over, (q.others + 1) * (q.mine + cost) - limit_cost)
end
local function wait_of(q, cost, limit_cost)  -- seconds until it is let in, and of work before it
  local mine = math.min(q.mine, q.tasks * cost)
  local before = mine + math.min(q.all - q.mine, q.others * (mine + cost))
  local above = before + cost - limit_cost
  local far = crowded(q, cost, limit_cost)
  if above <= 0 and far <= 0 then return 0 end
  -- Among larger tasks the work before it shrinks as they end, more slowly than they are served. It is let in
  -- at last when nothing of the owner's is left.
  above = math.max(far, above * math.max(1, q.mine / math.max(mine, 1)))
  return math.min(above, q.mine + math.min(q.all - q.mine, q.others * q.mine)) / q.rate, before / q.rate
end
-- A task that is not listed has a caller who waits, until UNWANTED_MS before its end. From then on it does not count: it
-- ends unserved, or soon. Only what was looked at is taken off: others may be of another size, or of another lane.
local wanted = {}                       -- tasks that others join in this call: they end later than is written
local function without(q, other)
  if wanted[other] then return end
  local f = call('HMGET', task_key(other), 'lane', 'owner', 'cost', 'listed')
  if f[1] ~= q.lane or f[4] then return end
  q.all = q.all - f[3]
  if f[2] == q.owner then q.mine, q.tasks = q.mine - f[3], q.tasks - 1 end
end
-- The reply that refuses a task of so much cost, or nil. Changes q.
local function backlog_full(q, cost, limit_cost)
  if wait_of(q, cost, limit_cost) == 0 then return end
  q.changed = true
  local soon = NOW + UNWANTED_MS
  local unwanted = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(soon), 'LIMIT', 0, LOOK)
  for _, other in ipairs(unwanted) do without(q, other) end
  local wait, before = wait_of(q, cost, limit_cost)
  if wait == 0 then return end
  local later = call('ZRANGEBYSCORE', DEADLINES, '(' .. int(soon), int(soon + wait * 1000), 'WITHSCORES', 'LIMIT', 0,
    LOOK_AHEAD)
  for i = 1, #later, 2 do
    without(q, later[i])
    wait = math.min(wait, math.max((later[i + 1] - soon) / 1000, (wait_of(q, cost, limit_cost))))
  end
  if wait > 0 then return {'full', tostring(wait), tostring(before)} end
end

-- Bytes. What one owner fills must leave room for others (dynamic thresholds, Choudhury and Hahne 1998): however many
-- there are, whoever has little is let in. share: as many times what is free as one owner may fill; 0: all of it.
local function bytes_over(room, mine, need, share)  -- above what there is room for, of all or of this owner; nil: none
  if need > room then return need - room end
  if share > 0 and mine > 0 and mine + need > share * (room - need) then
    return (mine + need - share * (room - need)) / (1 + share), true
  end
end
local function worked_off(q, n)         -- seconds until so many bytes of queued texts are done
  return n <= q.bytes and n / q.bytes * q.cost / q.rate or NEVER_S
end
local function results_gone(n, owner)   -- seconds until results that fill so much have expired; nil: of any owner
  local entries = call('ZRANGE', HELD_UNTIL, 0, LOOK - 1)
  for _, entry in ipairs(entries) do
    local ends, who = string.match(entry, '^(%d+) (.*)$')
    if not owner or who == owner then n = n - call('HGET', HELD, entry) end
    if n <= 0 then return (ends - NOW) / 1000 end
  end
  return NEVER_S
end
-- The reply that refuses texts of so many bytes, whose results need `reserve` more; or nil.
local function bytes_full(q, bytes, reserve, max_bytes, max_memory, share)
  local many = q.bytes > 0 and bytes_over(max_bytes - q.bytes, q.my_bytes, bytes, share)
  if many then return {'full', tostring(worked_off(q, many)), tostring(q.cost / q.rate)} end
  -- The vectors of accepted work need room too: it is reserved now, or running work could not be finished later.
  local room = memory_room(max_memory)
  if not room then return end
  q.held = q.held or tonumber(call('HGET', HELD, q.owner) or 0)
  local n, of_owner = bytes_over(room, q.held, bytes + reserve, share)
  if n then
    local gone = results_gone(n, of_owner and q.owner or nil)
    return {of_owner and 'share' or 'memory', tostring(math.min(gone, worked_off(q, n)))}
  end
end
