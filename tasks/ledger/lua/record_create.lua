-- Stores a record, or finds the one that its alias names.
-- own: kind id change (a random name) JSON alias digest limits (JSON: what the owner's account may come to, name -> number),
--   percent of memory
-- reply: {'ok' | 'joined', id} | {'conflict'} | {'revoked'} | {'full', name, most, has} | {'memory'}
-- uses: records
local kind, id, change, text, alias, digest, limits, max_memory = unpack(ARGV, OWN)
local r = cjson.decode(text)
local name, bytes = kind .. ':' .. alias, RECORD_BYTES + #text
local alias_at = R .. ':alias:' .. r.owner .. ':' .. name
local other, of = string.match(alias ~= '' and call('GET', alias_at) or '', '^(%S+) (%S+)$')
if other and call('EXISTS', record_key(kind, other)) == 1 then return of == digest and {'joined', other} or {'conflict'} end
if call('EXISTS', record_key(kind, id)) == 1 then return {'ok', id} end -- this very call, again
local a = owner_of(r)
if a.revoked > 0 or a.purged > 0 then return {'revoked'} end
for what, most in pairs(cjson.decode(limits)) do
  local more = what == 'bytes' and bytes or r.counts[what] or 0
  if more > 0 and a[what] + more > most then return {'full', what, most, a[what]} end
end
local memory = numbers(R .. ':memory')
if memory.limit > 0 and memory.used + bytes > memory.limit * max_memory / 100 then return {'memory'} end
local stored = redis.pcall('HSET', record_key(kind, id), 's', text, 'change', change, 'bytes', bytes)
if type(stored) == 'table' and stored.err then
  return string.find(stored.err, 'OOM', 1, true) and {'memory'} or redis.error_reply(stored.err)
end
if alias ~= '' then
  call('HSET', record_key(kind, id), 'alias', name)
  call('SET', alias_at, id .. ' ' .. digest)
end
tally_record(r, bytes, 1)
enter_record(kind, id, r, true)
save_sums()
return {'ok', id}
