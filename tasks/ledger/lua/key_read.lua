-- The API keys.   own: known (the stamp that the caller has read before) owner...
-- reply: {now in milliseconds, stamp, generations of `anonymous`, {owner who is purged, since when, ...}, name, record,
-- ...}; only the first four where no key has changed since.
-- Cost: two fields and one entry for each owner; all keys after a change.
allowed_when_full()
local key = R .. ':keys'
local f = call('HMGET', key, '@stamp', '@anonymous')
local purged = {}
for i = 2, #ARGV - FIRST do
  local since = call('ZSCORE', R .. ':purged', arg(i))
  if since then purged[#purged + 1], purged[#purged + 2] = arg(i), since end
end
local stamp = f[1] or ''
local out = {int(NOW), stamp, f[2] or '', purged}
if stamp ~= arg(1) then
  for _, text in ipairs(call('HGETALL', key)) do out[#out + 1] = text end
end
return out
