-- Reads a list, by the ids of its records, which is the order of their creation.
-- own: kind list after ('': from the start) limit order ('asc', 'desc', 'any': some by chance) whole (0: without JSON)
-- reply: {1 there are more, {id, JSON or '', change}...}
-- uses: records
local kind, list, after, limit, order, whole = unpack(ARGV, OWN, OWN + 5)
local key, some, ids = list_key(kind, list), limit + 1, nil
if order == 'any' then ids = call('ZRANDMEMBER', key, limit)
elseif order == 'asc' then ids = call('ZRANGEBYLEX', key, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, some)
else ids = call('ZREVRANGEBYLEX', key, after == '' and '+' or '(' .. after, '-', 'LIMIT', 0, some) end
local out = {ids[some] and 1 or 0}
for i = 1, math.min(#ids, limit) do
  local f = call('HMGET', record_key(kind, ids[i]), 'change', whole == '1' and 's' or '-')
  out[#out + 1] = {ids[i], f[2] or '', f[1]}
end
return out
