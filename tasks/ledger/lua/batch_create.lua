-- Stores a batch, or finds the one that its alias names.
-- own: id owner window_ms ttl_ms alias digest max_open max_memory max_bytes max_files, then field value...
--      (-1: no limit; bytes and files are those that the owner has stored)
-- reply: {'ok' | 'joined', id} | {'conflict'} | {'full', open ones} | {'memory'} | {'quota', bytes, files}
local id, owner, alias, digest = arg(1), arg(2), arg(5), arg(6)
local window, ttl = tonumber(arg(3)), tonumber(arg(4))
local max_open, max_memory = tonumber(arg(7)), tonumber(arg(8))
-- An open batch waits so long for its workers, however short a time it is kept after its end.
local PATIENCE_MS = 366 * 86400000
local life = window + math.max(ttl, PATIENCE_MS)
local key, list, running = R .. ':batch:' .. id, R .. ':batches:' .. owner, R .. ':batches-open:' .. owner
local alias_at = R .. ':batch-alias:' .. owner .. ':' .. alias

if alias ~= '' then
  local other, of = string.match(call('GET', alias_at) or '', '^(%S+) (%S+)$')
  if other and call('EXISTS', R .. ':batch:' .. other) == 1 then
    if of ~= digest then return {'conflict'} end
    return {'joined', other}
  end
end
if call('EXISTS', key) == 1 then return {'ok', id} end -- this very call, again

-- Those whose records ended by themselves no longer count.
local lost = call('ZCOUNT', running, '-inf', int(NOW))
local open = call('ZCARD', running) - lost
if max_open >= 0 and open >= max_open then return {'full', open} end
local over = over_quota(owner, tonumber(arg(9)), tonumber(arg(10)))
if over then return over end
local used, limit = string.match(call('GET', MEMORY) or '', '^(%d+) (%d+)$')
if used and tonumber(limit) > 0 then
  local reserved = tonumber(call('GET', RESERVED) or 0)
  if tonumber(used) + reserved > tonumber(limit) * max_memory / 100 then return {'memory'} end
end

-- HSET first: Redis refuses it when memory is full, before anything has changed.
local stored = redis.pcall('HSET', key, 'owner', owner, 'status', 'validating', 'created', int(NOW),
  'expires', int(NOW + window), 'ttl', int(ttl))
if type(stored) == 'table' and stored.err then
  return redis.error_reply((string.find(stored.err, 'OOM', 1, true) and 'OOM ' or 'ERR ') .. stored.err)
end
for i = FIRST + 11, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
call('PEXPIRE', key, int(life))
call('ZADD', list, 0, id)
if lost > 0 then call('ZREMRANGEBYSCORE', running, '-inf', int(NOW)) end
call('ZADD', running, int(NOW + life), id)
for _, name in ipairs({list, running}) do
  if call('PTTL', name) < life then call('PEXPIRE', name, int(life)) end
end
-- Batches expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
for _, other in ipairs(call('ZRANDMEMBER', list, -2)) do
  if call('EXISTS', R .. ':batch:' .. other) == 0 then call('ZREM', list, other) end
end
call('SADD', R .. ':open-batches', id)
if alias ~= '' then
  call('HSET', key, 'alias', alias)
  call('SET', alias_at, id .. ' ' .. digest, 'PX', int(life))
end
return {'ok', id}
