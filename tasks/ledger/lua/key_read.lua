-- The API keys.   own: known (the stamp that the caller has read before) since (of the clock of Redis, in milliseconds)
-- reply: {now in milliseconds, stamp, {owner that was purged since, ...}, name, record, ...}; only the first three where no
-- key has changed since.
-- Cost: one field and what was purged; all keys after a change.
allowed_when_full()
local key = R .. ':keys'
local stamp = call('HGET', key, '@stamp') or ''
local out = {int(NOW), stamp, call('ZRANGEBYSCORE', R .. ':purged', arg(2), '+inf')}
if stamp ~= arg(1) then
  for _, text in ipairs(call('HGETALL', key)) do out[#out + 1] = text end
end
return out
