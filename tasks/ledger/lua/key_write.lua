-- Changes one API key, if nobody else has changed it.   own: name before after stamp most
-- before, after: the record as JSON, '' for none. stamp: '' for what is no key. most: keys that there may be.
-- reply: 'ok', 'changed' or 'full'. Cost: one field.
allowed_when_full()                     -- keys are small and few, and to revoke one must not need memory
local name, before, after, key = arg(1), arg(2), arg(3), R .. ':keys'
local now = call('HGET', key, name) or ''
if now == after then return 'ok' end    -- this very call, again
if now ~= before then return 'changed' end
local stamp = arg(4)
if before == '' and stamp ~= '' then
  local keys = call('HLEN', key) - call('HEXISTS', key, '@stamp') - call('HEXISTS', key, '@anonymous')
  if keys >= tonumber(arg(5)) then return 'full' end
end
if after == '' then call('HDEL', key, name) else call('HSET', key, name, after) end
if stamp ~= '' then call('HSET', key, '@stamp', stamp) end
return 'ok'
