-- Stores a batch, or finds the one that its alias names.
-- own: id owner window_ms ttl_ms alias digest, then field value...   reply: {'ok' | 'joined', id} | {'conflict'}
local id, owner, alias, digest = arg(1), arg(2), arg(5), arg(6)
local window, ttl = tonumber(arg(3)), tonumber(arg(4))
local key, list = R .. ':batch:' .. id, R .. ':batches:' .. owner
local alias_at = R .. ':batch-alias:' .. owner .. ':' .. alias

if alias ~= '' then
  local other, of = string.match(call('GET', alias_at) or '', '^(%S+) (%S+)$')
  if other and call('EXISTS', R .. ':batch:' .. other) == 1 then
    if of ~= digest then return {'conflict'} end
    return {'joined', other}
  end
end
if call('EXISTS', key) == 1 then return {'ok', id} end -- this very call, again

-- HSET first: Redis refuses it when memory is full, before anything has changed.
local stored = redis.pcall('HSET', key, 'owner', owner, 'status', 'validating', 'created', int(NOW),
  'expires', int(NOW + window), 'ttl', int(ttl))
if type(stored) == 'table' and stored.err then
  return redis.error_reply((string.find(stored.err, 'OOM', 1, true) and 'OOM ' or 'ERR ') .. stored.err)
end
for i = FIRST + 7, #ARGV, 2 do call('HSET', key, ARGV[i], ARGV[i + 1]) end
call('PEXPIRE', key, int(window + ttl))
call('ZADD', list, 0, id)
if call('PTTL', list) < window + ttl then call('PEXPIRE', list, int(window + ttl)) end
call('SADD', R .. ':open-batches', id)
if alias ~= '' then
  call('HSET', key, 'alias', alias)
  call('SET', alias_at, id .. ' ' .. digest, 'PX', int(window + ttl))
end
return {'ok', id}
