-- Reads a list, by the ids of its records, which is the order of their creation.
-- own: kind list after ('': from the start) limit order ('asc', 'desc', 'any': some by chance)
-- reply: {1 there are more, {id, JSON, change}...}
-- uses: records
local kind, list, after, limit, order = unpack(ARGV, OWN, OWN + 4)
local key, some, ids = list_key(kind, list), limit + 1, nil
if order == 'any' then ids = call('ZRANDMEMBER', key, limit)
elseif order == 'asc' then ids = call('ZRANGEBYLEX', key, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, some)
else ids = call('ZREVRANGEBYLEX', key, after == '' and '+' or '(' .. after, '-', 'LIMIT', 0, some) end
local out = {ids[some] and 1 or 0}
for i = 1, math.min(#ids, limit) do
  local f = call('HMGET', record_key(kind, ids[i]), 's', 'change')
  out[#out + 1] = {ids[i], f[1], f[2]}
end
return out
