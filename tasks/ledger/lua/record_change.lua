-- Changes a record whose last change has the name that the caller has read. A number would not do: a Redis that goes back
-- gives it twice, and the change of a lost future would pass.
-- own: kind id name_read name JSON, number of fields to set (name, value), of fields to delete, then these
-- reply: {'ok'} | {'conflict', name of the last change, '' where there is no record}: read it again
-- uses: records
allowed_when_full()
local kind, id, read, change, text, sets, dels = unpack(ARGV, OWN)
local key, FIELDS = record_key(kind, id), OWN + 7
local f = call('HMGET', key, 's', 'change', 'bytes')
if f[2] == change then return {'ok'} end  -- this very call, again
if f[2] ~= read then return {'conflict', f[2] or ''} end
local was, r, bytes = cjson.decode(f[1]), cjson.decode(text), f[3] + #text - #f[1]
for i = FIELDS, FIELDS + 2 * sets - 1, 2 do
  local had = call('HSTRLEN', key, ARGV[i])
  bytes = bytes + #ARGV[i + 1] - had
  if call('HSET', key, ARGV[i], ARGV[i + 1]) == 1 then bytes = bytes + #ARGV[i] end
end
for i = FIELDS + 2 * sets, FIELDS + 2 * sets + dels - 1 do
  local had = call('HSTRLEN', key, ARGV[i])
  if call('HDEL', key, ARGV[i]) == 1 then bytes = bytes - #ARGV[i] - had end
end
tally_record(was, f[3], -1)
tally_record(r, bytes, 1)
call('HSET', key, 's', text, 'change', change, 'bytes', bytes)
enter_record(kind, id, r, true)
save_sums()
return {'ok'}
