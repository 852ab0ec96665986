-- An owner's tasks, the newest first. Changes nothing: an index holds what is there, neither more nor less.
-- own: owner after limit look states (space-separated; '': all)
-- reply: {the last id looked at, 1 if there may be more behind it, {id, record, metadata}...}
-- An id is a place in the order also when it is gone. Looks at no more than `look` entries, whatever it finds.
-- uses: task_record
local owner, after, limit, look, states = unpack(ARGV, OWN)
local wanted, out = {}, {'', 0}
for state in string.gmatch(states, '%S+') do wanted[state] = true end
local ids = call('ZREVRANGEBYLEX', R .. ':index:task:' .. owner, after == '' and '+' or '(' .. after, '-', 'LIMIT', 0, look)
for _, id in ipairs(ids) do
  local f = call('HMGET', task_key(id), 's', 'm')
  if f[1] and (states == '' or wanted[cmsgpack.unpack(f[1])[STATE]]) then
    if #out - 2 == tonumber(limit) then
      out[2] = 1
      return out
    end
    out[#out + 1] = {id, f[1], f[2] or ''}
  end
  out[1] = id
end
if #ids == tonumber(look) then out[2] = 1 end
return out
