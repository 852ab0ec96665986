-- Changes a record, if its last change is the one that the caller has read.
-- own: kind id change as read, new change, JSON, for_ms (0: without end, -1: as before), limits
-- reply: {'ok', id}: it is as it shall be, also this very call, again | {'changed'}: another one was first, or it is gone
--   | {'full', name, what the account would come to}
-- uses: records
allowed_when_full()
local kind, id, before, change, text, for_ms, limits = unpack(ARGV, OWN, OWN + 6)
local f = call('HMGET', record_key(kind, id), 's', 'weight', 'change')
if f[3] == change then return {'ok', id} end
if f[3] ~= before then return {'changed'} end
local was = cjson.decode(f[1])
local above = above_limits(cjson.decode(text), was, limits)
if above then return above end
replace_record(kind, id, was, f[2], text, f[2] + #text - #f[1], change, tonumber(for_ms))
save_sums()
return {'ok', id}
