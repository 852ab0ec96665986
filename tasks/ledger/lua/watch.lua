-- Housekeeping that must not depend on a live worker.   reply: {bell due, ready, leases, expired, more}
-- uses: accounts ending leases records turns wakeup
local MAX_ENDED = 64 -- Redis is not held for long
local FORGOTTEN_AFTER_MS = 7 * 86400000
local MAX_DROPPED = 256
allowed_when_full()
look_at_clock(true)
reap(2)
local overdue, expired = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(NOW), 'LIMIT', 0, MAX_ENDED), 0
for _, id in ipairs(overdue) do
  if end_task(id, 'expired') then expired = expired + 1 else call('ZREM', DEADLINES, id) end
end
prune_workers()
for _, entry in ipairs(call('ZRANGEBYSCORE', HELD_UNTIL, '-inf', int(NOW), 'LIMIT', 0, MAX_DROPPED)) do
  drop_results(entry)
end
for _, entry in ipairs(call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, MAX_ENDED)) do
  local kind, id = string.match(entry, '^([^:]*):(.*)$')
  if not remove_record(kind, id) then call('ZREM', DUE, entry) end
end

local info = call('INFO', 'memory')
local used, limit = string.match(info, 'used_memory:(%d+)'), string.match(info, 'maxmemory:(%d+)')
call('SET', MEMORY, used .. ' ' .. (limit or 0), 'PX', 60000)
local seen_memory = numbers(R .. ':memory')
seen_memory.used, seen_memory.limit = used + (call('GET', RESERVED) or 0), tonumber(limit or 0)

-- Every worker that holds a lease asks for more by itself: bells would only pile up behind long claims.
local leases, workers = call('ZCARD', LEASES), call('ZCARD', WORKERS)
local waiting, due = ready(), 0
local function busy()                   -- live workers with a lease; each has few, one for each of its streams
  local seen, n = {}, 0
  for _, token in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    local worker = string.match(token, '^[^/]*')
    if not seen[worker] and call('ZSCORE', WORKERS, worker) then seen[worker], n = true, n + 1 end
  end
  return n
end
if waiting > 0 and (workers == 0 or busy() < workers) then
  wake_lingerer()
  due = bell_due()
end

-- A model that nobody has served or asked for in a week is unknown again: each web tier watches all that are known.
if workers == 0 and call('HEXISTS', R .. ':models', QUEUE) == 1 then
  local s = call('HMGET', S, 'tasks_online', 'tasks_bulk', 'idle')
  local since = tonumber(s[3] or '')
  if tonumber(s[1] or 0) + tonumber(s[2] or 0) > 0 then call('HDEL', S, 'idle')
  elseif not since or since > NOW then call('HSET', S, 'idle', int(NOW))
  elseif NOW - since >= FORGOTTEN_AFTER_MS then
    call('HDEL', R .. ':models', QUEUE)
    call('UNLINK', S)
  end
end
settled()
save_sums()
announce()
return {due, waiting, leases, expired, #overdue == MAX_ENDED and 1 or 0}
