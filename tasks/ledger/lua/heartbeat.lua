-- What a worker says of itself every few seconds, and the housekeeping that must not depend on a live worker.
-- own: worker ttl_ms rate entry (JSON) model (JSON or '') stamp what lease_ms counts (JSON: name -> number, added to the totals
--   of the queue) tokens...
--   what: 'loading': it loads its model, and is no live worker yet. 'join': the model is loaded. 'beat': it lives, and the leases
--   of the tokens go on. 'stop': it gives back what it holds. 'watch': nobody in particular looks.
-- reply: {1, 0: another model is served; bell due, ready, leases, ended or forgotten, 1 there may be more}
-- uses: lost_pieces wake_worker records
local MAX_DUE, MAX_REAPED, STILL_MS, RENEWED_MS, EVERY_MS = 64, 8, 5000, 30000, 1000
local FORGOTTEN_AFTER_MS = 604800000
local worker, ttl, rate, entry, model, stamp, what, lease_ms, counts = unpack(ARGV, OWN)
local q, WORKERS, ENTRIES, LOADING, MODELS = queue(QUEUE), Q .. 'workers', Q .. 'entries', Q .. 'loading', R .. ':models'
allowed_when_full()

local function of_worker(name) return string.match(name, '^[^/]*') == worker end
local function drop_claims(which, lost)
  for _, token in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    if which(token) then drop_claim(token, lost) end
  end
end
local function stop_lingering()
  for _, stream in ipairs(call('ZRANGE', LINGER, 0, -1)) do
    if of_worker(stream) then call('ZREM', LINGER, stream) end
  end
end
-- Whether this worker's model is served, or is from here on: of two that start together with different models one is refused.
local function may_serve()
  if stamp == '' or q.serves == 0 or q.serves == stamp then return true end
  if what ~= 'join' then return false end
  for _, other in ipairs(call('ZRANGEBYSCORE', WORKERS, '(' .. NOW, '+inf')) do
    if other ~= worker then return false end
  end
  -- Whoever still holds a claim has the model before, and must not commit any more: nobody's fault.
  drop_claims(function() return true end, false)
  call('DEL', LINGER)                   -- nor does waking it help anybody
  return true
end
local function leave(lost)              -- what it held, or its predecessor, comes back now, not at the end of the lease
  drop_claims(of_worker, lost)
  stop_lingering()
  call('HDEL', LOADING, worker)
  if call('ZSCORE', WORKERS, worker) then call('ZADD', WORKERS, NOW, worker) end
end
local function join()
  leave(true)
  q.bell, q.rings = 0, 0                -- rung for workers that were not there, and by now perhaps believed for half a minute
  count(QUEUE, 'model_loads', 1)
end
local function live()
  if model ~= '' then
    call('HSET', MODELS, QUEUE, model)
    q.serves = stamp
  end
  call('ZADD', WORKERS, NOW + ttl, worker)
  call('HSET', ENTRIES, worker, entry, worker .. ' rate', rate)
  q.absent = 0
end
local function renew()
  for i = OWN + 9, #ARGV do
    call('ZADD', LEASES, 'XX', NOW + lease_ms, ARGV[i])
  end
end

-- The rate is the sum over live workers; the last known one is kept.
local function prune_workers()
  call('ZREMRANGEBYSCORE', LINGER, '-inf', NOW)
  local gone = call('ZRANGEBYSCORE', WORKERS, '-inf', NOW, 'WITHSCORES')
  for i = 1, #gone, 2 do
    call('ZREM', WORKERS, gone[i])
    call('HDEL', ENTRIES, gone[i], gone[i] .. ' rate')
    local lone = 'lone:' .. gone[i]      -- it may live after all, while Redis stood still: its claim says so
    if q[lone] ~= 0 and call('HEXISTS', CLAIMS, q[lone]) == 0 then q[lone] = 0 end
  end
  local left, sum = call('ZRANGE', WORKERS, 0, -1), 0
  for _, name in ipairs(left) do sum = sum + (call('HGET', ENTRIES, name .. ' rate') or 0) end
  if sum > 0 then q.rate = math.max(sum, 1) end
  if not left[1] and q.absent == 0 and (gone[1] or call('HEXISTS', MODELS, QUEUE) == 1) then
    q.absent = tonumber(gone[#gone] or NOW)
  end
  local loading = call('HGETALL', LOADING)
  for i = 1, #loading, 2 do
    if tonumber(string.match(loading[i + 1], '^%d+')) <= NOW then call('HDEL', LOADING, loading[i]) end
  end
end
-- While Redis or its clock stood still nobody could renew a lease: what has passed beyond the time between two looks does not
-- count.
local function look_at_clock()
  local gap = q.looked > 0 and NOW - q.looked or 0
  if gap > STILL_MS then
    local leases = call('ZRANGE', LEASES, 0, -1, 'WITHSCORES')
    for i = 1, #leases, 2 do call('ZADD', LEASES, leases[i + 1] + gap - STILL_MS, leases[i]) end
  end
  if gap < 0 then                       -- the clock went back: nobody has said by the new one that he lives
    local ends = call('ZRANGE', WORKERS, 0, -1, 'WITHSCORES')
    for i = 1, #ends, 2 do call('ZADD', WORKERS, ends[i + 1] + gap, ends[i]) end
    call('DEL', LOADING)                -- it is said again soon
    for _, token in ipairs(call('ZRANGE', LEASES, 0, -1)) do call('ZADD', LEASES, 'LT', NOW + RENEWED_MS, token) end
  end
  q.looked = NOW
end
local function reap()
  for _, token in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', NOW, 'LIMIT', 0, MAX_REAPED)) do drop_claim(token, true) end
end
local function end_what_is_due()        -- how many, and whether there may be more
  local overdue, effort = call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, MAX_DUE), 0
  for n, of in ipairs(overdue) do
    local id = string.sub(of, 6)        -- behind "task:"
    local x = task(id)
    if x and OPEN[x.t[STATE]] then end_task(x, 'expired')
    elseif x and not ended[id] then forget(x, id)  -- or a text was convicted just now, and it is due later
    else call('ZREM', DUE, of) end
    effort = effort + 1 + (x and x.t[PIECES] / PIECES_A_LOOK or 0)
    if effort >= MAX_DUE then return n, true end
  end
  return #overdue, false
end
local function remove_records()         -- likewise those that are over. A model worker has no right to any record
  if QUEUE ~= '@documents' then return 0, false end
  local over = call('ZRANGEBYSCORE', R .. ':ends', '-inf', NOW, 'LIMIT', 0, MAX_DUE)
  for _, of in ipairs(over) do
    local kind, id = string.match(of, '^([^:]*):(.*)$')
    if not remove_record(kind, id) then call('ZREM', R .. ':ends', of) end
  end
  return #over, #over == MAX_DUE
end
local function look_at_memory()
  local info, reserved = call('INFO', 'memory'), 0
  for _, name in ipairs(call('HKEYS', MODELS)) do
    if name ~= QUEUE then reserved = reserved + queue(name).reserved end
  end
  q.used, q.limit = string.match(info, 'used_memory:(%d+)') + reserved, tonumber(string.match(info, 'maxmemory:(%d+)') or 0)
  local memory = numbers(R .. ':memory')
  memory.used, memory.limit = q.used + q.reserved, q.limit
end
-- A model that nobody has served or asked for in a week is unknown again: each web tier watches all that are known.
local function forget_model()
  if q.absent == 0 or NOW - q.absent < FORGOTTEN_AFTER_MS or q.owners_online + q.owners_bulk > 0 then return end
  call('HDEL', MODELS, QUEUE)
  call('UNLINK', Q .. 'state', Q .. 'counts')
end
-- Every worker that holds a lease asks for more by itself: bells would only pile up behind long claims.
local function ring_if_idle(waiting, leases)
  local at_work, workers, idle = {}, call('ZRANGEBYSCORE', WORKERS, '(' .. NOW, '+inf'), 0
  for _, token in ipairs(leases) do at_work[string.match(token, '^[^/]*')] = true end
  for _, name in ipairs(workers) do idle = idle + (at_work[name] and 0 or 1) end
  if waiting == 0 or #workers > 0 and idle == 0 then return 0 end
  wake_lingerer(QUEUE)
  return bell_due(QUEUE)
end

if counts ~= '' then
  for name, n in pairs(cjson.decode(counts)) do count(QUEUE, name, n) end
end
local keeps_house = what == 'watch' or NOW < q.looked or NOW - q.looked >= EVERY_MS
if keeps_house then look_at_clock() end -- before a lease is renewed
local accepted = may_serve()
local bell, tasks_over, records_over, more_tasks, more_records = 0, 0, 0, false, false
if what == 'loading' then
  leave(true)
  call('HSET', LOADING, worker, NOW + ttl .. ' ' .. entry)
elseif what == 'stop' then leave(false)
elseif accepted and what ~= 'watch' then
  if what == 'join' then join() end
  live()
  renew()
end
if keeps_house then
  reap()
  tasks_over, more_tasks = end_what_is_due()
  records_over, more_records = remove_records()
  look_at_memory()
end
prune_workers()
local waiting, leases = ready(), call('ZRANGE', LEASES, 0, -1)
if what == 'join' and accepted or what == 'stop' then bell = wake_if_ready()  -- for what has come back
elseif keeps_house then bell = ring_if_idle(waiting, leases) end
announce()
save_sums()
forget_model()
return {accepted and 1 or 0, bell, waiting, #leases, tasks_over + records_over, (more_tasks or more_records) and 1 or 0}
