-- A page of an owner's files by time of creation.
--   own: owner purpose ("": any) after ("": from the start) when `after` was made, limit, how many to look at, order
--   reply: {the last file looked at, false at the end; then {id, hash} of each}
local owner, purpose, after, made, limit, look = arg(1), arg(2), arg(3), arg(4), tonumber(arg(5)), tonumber(arg(6))
local key, down = R .. ':files:' .. owner, arg(7) == 'desc'

local function start()
  if after == '' then return 0 end
  local rank = call(down and 'ZREVRANK' or 'ZRANK', key, after)
  if rank then return rank + 1 end
  -- It was deleted while the caller turned pages: those made before it, and of the same moment those with a lower id.
  local before = down and call('ZCOUNT', key, '(' .. made, '+inf') or call('ZCOUNT', key, '-inf', '(' .. made)
  for _, id in ipairs(call('ZRANGEBYSCORE', key, made, made, 'LIMIT', 0, look)) do
    if down and id > after or not down and id < after then before = before + 1 end
  end
  return before
end

local first = start()
local ids = call(down and 'ZREVRANGE' or 'ZRANGE', key, int(first), int(first + look - 1))
local looked, page = 0, {false}
for _, id in ipairs(ids) do
  if #page > limit then break end
  looked = looked + 1
  local file = R .. ':file:' .. id
  local kind = call('HGET', file, 'purpose')     -- false: it has expired
  if kind and (purpose == '' or kind == purpose) then page[#page + 1] = {id, call('HGETALL', file)} end
end
if looked > 0 and first + looked < call('ZCARD', key) then page[1] = ids[looked] end
return page
