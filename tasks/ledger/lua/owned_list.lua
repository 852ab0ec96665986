-- Ids of what an owner has of a kind, the newest first.   reply: {1 there are more, id...}
-- own: owner after limit kind ("batch") kinds ("batches"), as the keys of one and of the list are called
local list, limit = R .. ':' .. arg(5) .. ':' .. arg(1), tonumber(arg(3))
local max, found = arg(2) == '' and '+' or '(' .. arg(2), {}
while #found <= limit do
  local ids = call('ZREVRANGEBYLEX', list, max, '-', 'LIMIT', 0, limit + 1)
  for _, id in ipairs(ids) do
    if call('EXISTS', R .. ':' .. arg(4) .. ':' .. id) == 0 then call('ZREM', list, id) -- its life is over
    elseif #found <= limit then found[#found + 1] = id end
  end
  if #ids <= limit then break end
  max = '(' .. ids[#ids]
end
local more = #found > limit
if more then found[#found] = nil end
return {more and 1 or 0, found}
