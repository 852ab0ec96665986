-- A page of an owner's files by time of creation.
-- purpose: "": any. after: "": from the start; made_ms: when it was made. look: at so many at most. order: asc, desc.
-- reply: {the last file looked at, false at the end; then {id, hash} of each}
local owner, purpose, after, made_ms, limit, look, order = named(7)
limit, look = tonumber(limit), tonumber(look)
local key, down = R .. ':files:' .. owner, order == 'desc'

local function start()
  if after == '' then return 0 end
  local rank = call(down and 'ZREVRANK' or 'ZRANK', key, after)
  if rank then return rank + 1 end
  -- It was deleted while the caller turned pages: those made before it, and of the same moment those with a lower id.
  local before = down and call('ZCOUNT', key, '(' .. made_ms, '+inf') or call('ZCOUNT', key, '-inf', '(' .. made_ms)
  for _, id in ipairs(call('ZRANGEBYSCORE', key, made_ms, made_ms, 'LIMIT', 0, look)) do
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
