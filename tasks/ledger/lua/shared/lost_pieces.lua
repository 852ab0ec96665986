-- Pieces that come back without an outcome. One whose worker died comes back marked: whole if there were others, else in
-- parts. A marked piece is claimed alone, and its process holds nothing else then, so a death says who did it. A single
-- text that was alone too often fails.
-- uses: end_task fair_turns
local LOSSES = 3                        -- deaths alone, after the one that marked it
local PARTS = 4                         -- with 2 a poison costs more deaths, an innocent death half the claims
local LOST = '{"errors":[[%d,"worker_lost","The worker died or failed each time it tried this text alone. Leave it out."]],"truncated":[]}'

local function enter(x, tag) call('ZADD', lane_key(x.t), 'NX', tag, x.id) end
local function convict(x, name, p)
  local t = x.t
  tally(t, -1)
  t[FAILED], t[COST], t[BYTES] = t[FAILED] + 1, t[COST] - p.cost, t[BYTES] - p.bytes
  put(x, 'x' .. p.first, string.format(LOST, p.first))
  drop(x, name)
  count(t[IN_QUEUE], 'items_' .. t[LANE] .. '_failed', 1)
  if t[COMPLETED] + t[FAILED] == t[TOTAL] then finish(x, t[COMPLETED] > 0 and 'completed' or 'failed') end
  tally(t, 1)
end
local function split(x, name, p, back)  -- into parts, of which the first comes back last, to be claimed first
  local items, first, offset, cost, left, bytes = p.items, p.first, p.offset, p.cost, p.cost, p.bytes
  local size = math.ceil(items / PARTS)
  x.gone[#x.gone + 1], x.t[SPLIT] = 'u' .. name, 1
  for k = math.ceil(items / size) - 1, 0, -1 do
    p.first, p.items, p.offset = first + k * size, math.min(size, items - k * size), offset + k * size
    p.cost, p.bytes = k == 0 and left or math.floor(cost * p.items / items), k == 0 and bytes or 0
    left = left - p.cost
    back(name .. string.char(97 + k))
  end
end
local function held_piece(id, name, token)  -- its task and itself; nil: the token holds it no more
  local x, text = task(id, 'u' .. name)
  local p = x and OPEN[x.t[STATE]] and piece(text)
  if p and p.token == token then return x, p end
end
local function piece_returns(x, name, p, lost, alone)
  local t = x.t
  local function back(part) put(x, 'u' .. part, piece_text(p)); t[BACK] = part .. ' ' .. t[BACK] end
  p.token = '-'
  if not lost then
    back(name)
    enter(x, queue(t[IN_QUEUE])['v_' .. t[LANE]])  -- its turn was paid
    return
  end
  if p.items == 1 and p.deaths >= LOSSES then return convict(x, name, p) end
  local cost = p.cost
  p.deaths = p.items == 1 and p.deaths + 1 or 1
  if p.items == 1 or not alone then back(name) else split(x, name, p, back) end
  -- Alone it takes a whole claim: at least .05 s of work are charged, or many of them would hold up everybody.
  enter(x, tag_of(t, math.max(cost, queue(t[IN_QUEUE]).rate / 20)))
end
local function drop_claim(token, lost)  -- all that it still holds comes back
  local held, touched = {}, {}
  for id, name in string.gmatch(call('HGET', CLAIMS, token) or '', '(%S+) (%S+)') do
    local x, p = held_piece(id, name, token)
    if x then held[#held + 1], touched[x] = {x, name, p}, true end
  end
  for _, of in ipairs(held) do piece_returns(of[1], of[2], of[3], lost, #held == 1) end
  for x in pairs(touched) do
    if lost then x.t[DEATHS], x.t[DIED] = x.t[DEATHS] + 1, NOW end
    save_task(x)
  end
  call('HDEL', CLAIMS, token)
  call('ZREM', LEASES, token)
  if lost and next(touched) then count(QUEUE, 'lost_leases', 1) end
end
