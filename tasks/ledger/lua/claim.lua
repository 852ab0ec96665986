-- Takes pieces of one lane under a lease, or registers the stream as lingering, in one step.
-- own: stream ("worker/number") token budget online_budget max_pieces lease_ms linger_ms rang online_only rate stamp passes
--   online_only: '1', or '2': of that lane no lists, pieces of several texts that alone reach online_budget
--   passes: '', or the owner whose work is passed over. Where there is no other, the stream lingers
-- reply: {'changed'}: another model is served; or {bell due, ms to wait, more, lane,
--   {id, piece, first, items, cost, deaths, offset, options, payload, trace, owner}...}
-- A claim is one value that never changes: what of it is still held, the pieces say, which name its token.
-- A stream that stops asks with linger_ms 0, so it is registered no more; it is idle when it gets nothing.
-- uses: lost_pieces wake_worker
local stream, token, budget, online_budget, max_pieces, lease_ms, linger_ms, rang, online_only, rate, stamp, passes =
  unpack(ARGV, OWN)
local BULK_SHARE = 8                    -- bulk work gets one part in eight while it waits
local MAX_PASSED, MAX_ASIDE, MAX_BYTES = 64, 32, 16777216
local UNWANTED_MS, SERVED_MS, LONE_MS = 10000, 500, 50
local worker, no_lists = string.match(stream, '^[^/]*'), online_only == '2'
max_pieces, online_only, rate, linger_ms = tonumber(max_pieces), online_only ~= '0', tonumber(rate), tonumber(linger_ms)
call('ZREM', LINGER, stream)            -- the first write frees memory: a full Redis still lets work out
local q, lone = queue(QUEUE), 'lone:' .. worker
if q.serves == 0 then q.serves = stamp end
if q.serves ~= stamp then return {'changed'} end
-- Only a stream's first CLAIM after a bell clears it, or messages pile up behind a busy worker; a later one makes it young
-- again, but not each, as a write is an fsync.
if rang == '1' then q.bell, q.rings = 0, 0
elseif q.bell > 0 and (NOW < q.bell or NOW - q.bell >= 500 or q.rings ~= 1) then q.bell, q.rings = NOW, 1 end

local out, bytes = {0, 0, 0, ''}, 0
local function hand_out(x, name, p, payload)
  local t = x.t
  payload = payload or call('HGET', task_key(x.id), 'd' .. string.match(name, '^%d+'))
  bytes = bytes + #payload
  out[#out + 1] = {x.id, name, p.first, p.items, p.cost, p.deaths, p.offset, t[OPTIONS], payload, t[TRACE], t[OWNER]}
end
local held = call('HGET', CLAIMS, token)
if held then                            -- the reply got lost and the worker asks again: the same answer
  for id, name in string.gmatch(held, '(%S+) (%S+)') do
    local x, text = task(id, 'u' .. name)
    local p = x and OPEN[x.t[STATE]] and piece(text)
    if p and p.token == token then
      out[4] = x.t[LANE]
      hand_out(x, name, p)
    end
  end
  if #out == 4 then drop_claim(token) end
  if ready() > 0 then out[1], out[3] = wake_if_ready(), 1 end
  save_sums()
  return out
end
if q[lone] ~= 0 then
  if call('HEXISTS', CLAIMS, q[lone]) == 1 then  -- this process works on a marked piece, beside which nothing may run
    out[2] = LONE_MS
    save_sums()
    return out
  end
  q[lone] = 0
end
local function busy()                   -- whether another stream of this process holds something. O(claims), seldom asked
  for _, other in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    if string.match(other, '^[^/]*') == worker then return true end
  end
  return false
end

-- A stream takes no more than its part of the speed of all, of bulk work half of that, so that streams end together.
local room = {online = tonumber(online_budget), bulk = tonumber(budget)}
if rate > 0 and rate < q.rate then
  for lane, most in pairs(room) do
    local part = q['cost_' .. lane] * rate / q.rate
    room[lane] = math.min(most, math.ceil(lane == 'bulk' and part / 2 or part))
  end
end
local waiting = {online = call('ZCARD', Q .. 'online'), bulk = call('ZCARD', Q .. 'bulk')}
local both = waiting.online > 0 and waiting.bulk > 0
local refs, spent, asides, passed, spared, marked, blocked = {}, 0, 0, 0, false, false, false

-- Why a task must not be begun or go on; nil: it may.
local function over(t)
  return t[DEADLINE] > 0 and t[DEADLINE] <= NOW and 'expired'
    or t[MADE_BY] ~= '' and t[MADE_BY] ~= q.serves and 'model_changed'
    or purged(t) and 'cancelled'
end
-- Its caller, who waits on a connection, has gone, or goes before it can be answered: those who wait longer go first.
local function goes_behind(x, lane)
  local t = x.t
  return lane == 'online' and t[DEADLINE] > 0 and t[LISTED] == 0 and not x.aside and asides < MAX_ASIDE
    and t[DEADLINE] - NOW <= UNWANTED_MS + math.min(SERVED_MS, (t[DEADLINE] - t[CREATED] - UNWANTED_MS) / 4)
end
local function fill(lane)
  local line, taken, kept, last = Q .. lane, {}, {}, nil
  local function goes_back(tag, id) waiting[lane], kept[#kept + 1], kept[#kept + 2] = waiting[lane] + 1, tag, id end
  local function take(x, name, p, payload, tag)
    local t = x.t
    if t[BACK] ~= '' then t[BACK] = string.sub(t[BACK], #name + 2) else t[NEXT] = t[NEXT] + 1 end
    p.token, marked, taken[x] = token, p.deaths > 0, true
    put(x, 'u' .. name, piece_text(p))
    if t[STATE] == 'queued' then
      t[STATE], t[STARTED] = 'in_progress', NOW
    end
    refs[#refs + 1], spent = x.id .. ' ' .. name, spent + p.cost
    hand_out(x, name, p, payload)
    q['v_' .. lane] = math.max(q['v_' .. lane], tag)
    if t[BACK] ~= '' or t[NEXT] < t[PIECES] then
      call('ZADD', line, tag_of(t, p.cost), x.id)
      waiting[lane] = waiting[lane] + 1
    end
  end
  while #refs < max_pieces and bytes < MAX_BYTES and (#refs == 0 or spent < room[lane]) and not marked and passed < MAX_PASSED do
    local head = call('ZPOPMIN', line)
    local id, tag = head[1], tonumber(head[2])
    if not id then break end
    waiting[lane] = waiting[lane] - 1
    local x, text, payload
    if no_lists then x, text = task(id, 'u0')  -- lists that are passed over may be megabytes
    else x, text, payload = task(id, 'u0', 'd0') end  -- most tasks have one piece
    local t = x and x.t
    local why = t and over(t)
    if not t or why then
      passed = passed + 1 + (t and t[PIECES] / PIECES_A_LOOK or 0)
      if t then end_task(x, why) end
    elseif t[OWNER] == passes then
      goes_back(tag, id)
      passed, spared = passed + 1, true
    elseif goes_behind(x, lane) then
      last = last or tonumber(call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2] or tag)
      x.aside, asides, waiting[lane] = true, asides + 1, waiting[lane] + 1
      call('ZADD', line, last + 1, id)
    else
      local name = t[BACK] ~= '' and string.match(t[BACK], '%S+') or tostring(t[NEXT])
      if name ~= '0' or not text then
        local f = call('HMGET', task_key(id), 'u' .. name, 'd' .. string.match(name, '^%d+'))
        text, payload = f[1], f[2]
      end
      local p = piece(text)
      local alone = p.deaths > 0
      blocked = alone and #refs == 0 and not online_only and busy()
      if no_lists and p.items > 1 and p.cost >= tonumber(online_budget) then
        goes_back(tag, id)
        passed = passed + 1
      elseif blocked or #refs > 0 and spent + p.cost > room[lane] then
        goes_back(tag, id)
        break
      elseif alone and (#refs > 0 or online_only) then
        goes_back(tag, id)              -- it is the next claim's first
        passed = passed + 1
      else
        take(x, name, p, payload, tag)
      end
    end
  end
  for x in pairs(taken) do save_task(x) end
  if #kept > 0 then call('ZADD', line, unpack(kept)) end
end

local lane = waiting.bulk > 0 and not online_only and (q.credit >= (BULK_SHARE - 1) * online_budget or waiting.online == 0)
  and 'bulk' or 'online'
fill(lane)
if #refs == 0 and not online_only and not blocked then  -- else this process would never be free for the marked piece
  lane = lane == 'online' and 'bulk' or 'online'
  fill(lane)
end
if #refs > 0 then
  if lane == 'bulk' then                -- what it took beyond its share it owes, unless nobody else wanted it
    q.credit = q.credit - (BULK_SHARE - 1) * spent
    if not both then q.credit = math.max(0, q.credit) end
  elseif both then q.credit = math.min(q.credit + spent, 2 * (BULK_SHARE - 1) * online_budget) end
  call('HSET', CLAIMS, token, table.concat(refs, ' '))
  call('ZADD', LEASES, NOW + lease_ms, token)
  if marked then q[lone] = token end
  out[4] = lane
end
announce()
local left, nothing = waiting.online + waiting.bulk > 0, #refs == 0
if blocked and nothing then out[2] = LONE_MS
elseif left and not (spared and nothing) then out[1], out[3] = not wake_lingerer(QUEUE) and bell_due(QUEUE) or 0, 1
elseif nothing then
  -- Nobody is woken for what was passed over: streams of two processes that do so would wake each other for ever.
  if left then out[1] = bell_due(QUEUE) end
  if linger_ms > 0 and not online_only then
    call('ZADD', LINGER, NOW + linger_ms + 250, stream)  -- outlasts the wait: never blocked without being registered
    out[2] = linger_ms
  end
end
save_sums()
return out
