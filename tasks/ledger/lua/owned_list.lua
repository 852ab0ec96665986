-- Ids of what an owner has of a kind, the newest first.
--   own: owner after limit kind ("batch") kinds ("batches"), as the keys of one and of the list are called
--   reply: {1 there may be more, id...}
-- Looks at so many entries at most. Those that are gone leave the list, so that a repetition, behind the last id or with
-- the same cursor, goes on.
local LOOK = 250
local list, limit = R .. ':' .. arg(5) .. ':' .. arg(1), tonumber(arg(3))
local left = math.max(LOOK, limit + 1)
local max, page, ended = arg(2) == '' and '+' or '(' .. arg(2), {}, false
while #page <= limit and left > 0 and not ended do
  local some = math.min(limit + 1, left)
  local ids = call('ZREVRANGEBYLEX', list, max, '-', 'LIMIT', 0, some)
  for _, id in ipairs(ids) do
    if call('EXISTS', R .. ':' .. arg(4) .. ':' .. id) == 0 then call('ZREM', list, id) -- its life is over
    elseif #page <= limit then page[#page + 1] = id end
  end
  left, ended, max = left - #ids, #ids < some, '(' .. (ids[#ids] or '')
end
local more = #page > limit or not ended
if #page > limit then page[#page] = nil end
return {more and 1 or 0, page}
