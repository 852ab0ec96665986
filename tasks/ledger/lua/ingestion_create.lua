-- Stores an ingestion, or finds the one that its alias names. It has no TTL before it has ended.
-- own: id owner ttl_ms alias digest max_open max_bytes max_files beside, then field value...
--      (-1: no limit; bytes and files are those that the owner has stored, beside: bytes in datasets)
-- reply: {'ok' | 'joined', id} | {'conflict'} | {'full', open ones} | {'quota', bytes, files}
local id, owner, ttl, alias, digest, max_open = arg(1), arg(2), tonumber(arg(3)), arg(4), arg(5), tonumber(arg(6))
local key, list = R .. ':ingestion:' .. id, R .. ':ingestions:' .. owner
local alias_at = R .. ':ingestion-alias:' .. owner .. ':' .. alias

if alias ~= '' then
  local other, of = string.match(call('GET', alias_at) or '', '^(%S+) (%S+)$')
  if other and call('EXISTS', R .. ':ingestion:' .. other) == 1 then
    if of ~= digest then return {'conflict'} end
    return {'joined', other}
  end
end
if call('EXISTS', key) == 1 then return {'ok', id} end -- this very call, again

local open = call('SCARD', R .. ':ingesting:' .. owner)
if max_open >= 0 and open >= max_open then return {'full', open} end
local over = over_quota(owner, tonumber(arg(7)), tonumber(arg(8)), tonumber(arg(9)))
if over then return over end

-- Above every earlier one's. Not a plain count: a Redis that goes back, or begins anew, would give numbers again that
-- receipts in a sink have already.
local order = math.max(NOW, tonumber(call('GET', R .. ':ingestion-order') or 0) + 1)

-- HSET first: Redis refuses it when memory is full, before anything has changed.
local stored = redis.pcall('HSET', key, 'owner', owner, 'status', 'queued', 'created', int(NOW), 'ttl', int(ttl),
  'order', int(order))
if type(stored) == 'table' and stored.err then
  return redis.error_reply((string.find(stored.err, 'OOM', 1, true) and 'OOM ' or 'ERR ') .. stored.err)
end
for i = FIRST + 10, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
call('SET', R .. ':ingestion-order', int(order))
call('ZADD', list, 0, id)
call('PERSIST', list)
-- They expire silently. One comes and two are looked at, so the list cannot fill up with those that are gone.
for _, other in ipairs(call('ZRANDMEMBER', list, -2)) do
  if call('EXISTS', R .. ':ingestion:' .. other) == 0 then call('ZREM', list, other) end
end
call('SADD', R .. ':ingesting:' .. owner, id)
call('SADD', R .. ':open-ingestions', id)
if alias ~= '' then
  call('HSET', key, 'alias', alias)
  call('SET', alias_at, id .. ' ' .. digest)
end
return {'ok', id}
