-- Stores one task whole, or finds the one its alias names.
-- own: id lane owner deadline_in ttl options meta alias digest join max_backlog_s default_rate max_bytes max_memory
--      vector_bytes listed,
--      then per unit: items cost payload
-- reply: {'ok' | 'joined', id, ring} | {'full', seconds until there is room, seconds queued} | {'memory'} | {'conflict'}
local id, lane, owner = arg(1), arg(2), arg(3)
local deadline_in, ttl, options, meta = tonumber(arg(4)), arg(5), arg(6), arg(7)
local alias, digest, join = arg(8), arg(9), arg(10) == '1'
local listed = arg(16) == '1'
local UNITS = FIRST + 16
local JOIN_MS = 5000         -- a completed task is joined while its result lives this much longer
local TASK_BYTES = 1024      -- keys and counts of a task, beside its payload and its vectors

local function found(how, task)         -- stores nothing new, so a full Redis does not matter
  allowed_when_full()
  return {how, task, ready() > 0 and wake() or 0}
end

if alias ~= '' then
  local known = call('GET', alias_key(owner, alias))
  if known then
    local other, of = string.match(known, '^(%S+) (%S+)$')
    local f = call('HMGET', task_key(other), 'state', 'deadline', 'ttl')
    if f[1] and not join then
      if of ~= digest then return {'conflict'} end
      return {'joined', other, 0}
    end
    if f[1] and of == digest and OPEN[f[1]] then
      if f[2] and deadline_in > 0 and NOW + deadline_in > tonumber(f[2]) then
        allowed_when_full()
        call('HSET', task_key(other), 'deadline', int(NOW + deadline_in))
        call('ZADD', DEADLINES, int(NOW + deadline_in), other)
      end
      return found('joined', other)
    end
    -- Not in its last moments: the result must not vanish between this answer and the caller's next read. Nor is it kept
    -- for longer: what is asked for again and again would never be encoded again, by another model neither.
    if f[1] == 'completed' and of == digest and call('PTTL', task_key(other)) >= math.min(JOIN_MS, f[3] / 2) then
      return {'joined', other, 0}
    end
  end
end
if call('EXISTS', task_key(id)) == 1 then return found('ok', id) end  -- this very call, again

local cost, bytes, total = 0, 0, 0
local units = (#ARGV - UNITS) / 3
for i = 0, units - 1 do
  total = total + tonumber(ARGV[UNITS + 1 + 3 * i])
  cost = cost + tonumber(ARGV[UNITS + 2 + 3 * i])
  bytes = bytes + #ARGV[UNITS + 3 + 3 * i]
end

-- Admission. An empty queue takes any single task; otherwise it would never run.
local s = call('HMGET', S, 'cost_' .. lane, 'rate', 'bytes')
local rate = tonumber(s[2] or arg(12))
local queued, held = tonumber(s[1] or 0), tonumber(s[3] or 0)
if queued > 0 and queued + cost > tonumber(arg(11)) * rate then
  return {'full', tostring((queued + cost) / rate - tonumber(arg(11))), tostring(queued / rate)}
end
if held > 0 and held + bytes > tonumber(arg(13)) then
  return {'full', tostring(queued / rate / 2), tostring(queued / rate)}
end
-- The vectors of accepted work need room too: it is reserved now, or running work could not be finished later.
local reserve = total * tonumber(arg(15)) + (tonumber(arg(15)) > 0 and TASK_BYTES or 0)
local used, limit = string.match(call('GET', MEMORY) or '', '^(%d+) (%d+)$')
if used and tonumber(limit) > 0 then
  local reserved = tonumber(call('GET', RESERVED) or 0)
  if tonumber(used) + reserved + reserve + bytes > tonumber(limit) * tonumber(arg(14)) / 100 then return {'memory'} end
end

-- HSET first: Redis refuses it when memory is full, before anything has changed.
local stored = redis.pcall('HSET', task_key(id), 'q', MODEL, 'lane', lane, 'owner', owner, 'state', 'queued',
  'total', int(total), 'completed', 0, 'failed', 0, 'units', int(units), 'next', 0, 'back', 0, 'cost', int(cost),
  'bytes', int(bytes), 'reserve', int(reserve), 'created', int(NOW), 'ttl', ttl, 'tokens', 0, 'version', 1)
if type(stored) == 'table' and stored.err then
  return redis.error_reply((string.find(stored.err, 'OOM', 1, true) and 'OOM ' or 'ERR ') .. stored.err)
end
if options ~= '' then call('HSET', task_key(id), 'options', options) end
if listed then
  call('HSET', task_key(id), 'listed', 1)
  call('ZADD', tasks_key(owner), 0, id)
  if call('INCR', open_key(owner)) == 1 then call('PERSIST', tasks_key(owner)) end
  -- Tasks expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
  for _, other in ipairs(call('ZRANDMEMBER', tasks_key(owner), -2)) do
    if call('EXISTS', task_key(other)) == 0 then call('ZREM', tasks_key(owner), other) end
  end
end
if meta ~= '' then call('SET', meta_key(id), meta) end
if deadline_in > 0 then
  call('HSET', task_key(id), 'deadline', int(NOW + deadline_in))
  call('ZADD', DEADLINES, int(NOW + deadline_in), id)
end
if alias ~= '' then
  call('HSET', task_key(id), 'alias', alias)
  call('SET', alias_key(owner, alias), id .. ' ' .. digest)
end
local first, head = 0, 0
for i = 0, units - 1 do
  local items, c = tonumber(ARGV[UNITS + 1 + 3 * i]), tonumber(ARGV[UNITS + 2 + 3 * i])
  if i == 0 then head = c end
  call('HSET', units_key(id), 'u' .. int(i), unit_text({first = first, items = items, cost = c, attempts = 0,
    root = int(i), offset = 0, token = '-'}), 'p' .. int(i), ARGV[UNITS + 3 + 3 * i])
  first = first + items
end
call('HINCRBY', S, 'cost_' .. lane, int(cost))
call('HINCRBY', S, 'tasks_' .. lane, 1)
call('HINCRBY', S, 'bytes', int(bytes))
call('INCRBY', RESERVED, int(reserve))
if used then call('SET', MEMORY, int(tonumber(used) + bytes) .. ' ' .. limit, 'KEEPTTL') end  -- until WATCH looks again
enter_lane(id, lane, owner, head)
return {'ok', id, wake()}
