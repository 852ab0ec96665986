-- Units that come back uncommitted: suspects run alone, and one that kills its worker too often is convicted.
-- uses: ending turns
local DEATHS_ALONE = 3      -- an item fails after killing its worker this often while it was alone
local LOST = '{"errors":[[%s,"worker_lost","The worker died each time it tried this item alone. Leave it out."]],"truncated":[]}'

local function give_back(id, uid, u, lane, owner)
  call('HSET', units_key(id), 'u' .. uid, unit_text(u))
  if u.attempts > 0 then                -- it was in a claim whose worker died
    call('RPUSH', suspects_key(id), uid)
    enter_lane(id, 'suspects', owner, u.cost)
  else
    call('RPUSH', back_key(id), uid)
    call('HINCRBY', task_key(id), 'back', 1)
    enter_lane(id, lane, owner, u.cost)
  end
end
local function split(id, uid, u, lane, owner)       -- into single items, each a suspect
  call('HDEL', units_key(id), 'u' .. uid)
  local left = u.cost
  for i = 0, u.items - 1 do
    local cost = i == u.items - 1 and left or math.floor(u.cost / u.items)
    left = left - cost
    give_back(id, 's' .. int(u.first + i), {first = u.first + i, items = 1, cost = cost, attempts = 1, root = u.root,
      offset = u.offset + i, token = '-'}, lane, owner)
  end
end
-- A unit leased under `token` was not committed. released: nobody's fault, the attempt is refunded.
local function unit_returns(id, uid, token, released)
  local raw = call('HGET', units_key(id), 'u' .. uid)
  if not raw then return end
  local u = unit_record(raw)
  if u.token ~= token then return end
  local t = call('HMGET', task_key(id), 'lane', 'owner')
  u.token = '-'
  if released then
    u.attempts = u.attempts - 1
    give_back(id, uid, u, t[1], t[2])
    return
  end
  call('HSET', task_key(id), 'died', int(NOW),
    'deaths', int(math.max(u.attempts, tonumber(call('HGET', task_key(id), 'deaths') or 0))))
  if u.items > 1 then
    split(id, uid, u, t[1], t[2])
  elseif u.attempts > DEATHS_ALONE then -- the first attempt was in company
    call('HSET', result_key(id), 'x' .. int(u.first), string.format(LOST, int(u.first)))
    call('HDEL', units_key(id), 'u' .. uid)
    settle(id, 0, 1, u.cost, 0)
    count('failed_items', 1)
  else
    give_back(id, uid, u, t[1], t[2])
  end
end
