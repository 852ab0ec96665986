-- The API keys.   own: known (the stamp that the caller has read before)
-- reply: {now in milliseconds, stamp, name, record, ...}; only the first two where no key has changed since.
-- Cost: one field; all keys after a change.
allowed_when_full()
local key = R .. ':keys'
local stamp = call('HGET', key, '@stamp') or ''
local out = {int(NOW), stamp}
if stamp ~= arg(1) then
  for _, text in ipairs(call('HGETALL', key)) do out[#out + 1] = text end
end
return out
