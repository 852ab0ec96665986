-- CLAIM, as a worker asks for it, or as SUBMIT does it for a stream that waits.
-- uses: ending leases turns wakeup
local BULK_SHARE = 8        -- bulk gets one part in eight of the cost while it waits
local MAX_SKIPPED = 64      -- tasks ended by one CLAIM: expired, or half done by another model
local MAX_ASIDE = 32        -- tasks without a caller that one CLAIM passes over; those behind them are served as they come
local SERVED_MS = 500       -- from CLAIM to the answer, when there is much to do
local MAX_PASSED_OVER = 64  -- lists, in one look for small units
local MAX_BYTES = 16777216  -- a claim ends with the payload that reaches it: a long text costs what the model takes

local function claim(worker, token, budget, online_budget, max_units, lease_ms, linger_ms, rang, online_only, suspect,
  alone, rate, stamp, large_budget, small_only)   -- named. ASKED_AS of shared/wakeup.lua changes with them
  lease_ms, linger_ms, rate = tonumber(lease_ms), tonumber(linger_ms), tonumber(rate)
  rang, suspect, alone, small_only = rang == '1', suspect == '1', alone == '1', small_only == '1'
  online_only = online_only == '1' or small_only
  max_units = suspect and 1 or math.min(tonumber(max_units), 1000)
  online_budget = tonumber(online_budget)
  local room = {bulk = tonumber(budget), online = online_budget, large = tonumber(large_budget)}

  call('ZREM', LINGER, worker)            -- the first write frees memory only: a full Redis still lets work out
  -- All that it must know of the queue, in one command; what it changes of that goes back with one at its end.
  local queue = call('HMGET', S, 'serves', 'bell', 'rings', 'last', 'rate', 'cost_online', 'cost_bulk', 'vt_online', 'vt_bulk',
    'vt_suspects', 'credit', 'n_claims')
  local serves = queue[1]
  if not serves and stamp ~= '' then      -- of two models an emptied Redis serves the first
    call('HSET', S, 'serves', stamp)
    serves = stamp
  end
  if serves and serves ~= stamp then return {'changed'} end
  -- Only a drain's first CLAIM clears the bell, or messages would pile up behind one busy worker; a later one makes it
  -- young again. Not each: beside bulk work a worker looks for urgent texts dozens of times a second, and every write is
  -- an fsync for which all others wait.
  if rang then call('HDEL', S, 'bell', 'rings')
  else
    local at = tonumber(queue[2] or '')
    if at and (NOW < at or NOW - at >= BELL_MS / 2 or queue[3] ~= '1') then
      call('HSET', S, 'bell', int(NOW), 'rings', 1)
    end
  end

  local out, bytes = {0, 0, 0, '', 0}, 0
  local function hand_out(id, uid, u, payload, options, trace, owner)
    payload = payload or call('HGET', units_key(id), 'p' .. u.root)
    bytes = bytes + #(payload or '')
    out[#out + 1] = {id, uid, u.first, u.items, u.cost, u.attempts, u.offset, options or '', payload, trace or '',
      owner}
  end

  if call('EXISTS', claim_key(token)) == 1 then       -- the reply got lost and the worker asks again: the same answer
    for _, ref in ipairs(call('SMEMBERS', claim_key(token))) do
      local id, uid = string.match(ref, '^(%S+) (%S+)$')
      local raw = call('HGET', units_key(id), 'u' .. uid)
      local f = call('HMGET', task_key(id), 'lane', 'options', 'trace', 'owner')
      local u = raw and unit_record(raw)
      if u and u.token == token then
        out[4] = f[1]
        hand_out(id, uid, u, nil, f[2], f[3], f[4])
      end
    end
    if #out == 5 then drop_claim(token, true) end   -- all that it had has ended: nobody will end the claim
    if ready() > 0 then out[1], out[3] = wake(), 1 end
    out[5] = call('EXISTS', lane_key('suspects'))
    return out
  end

  local leases = reap(2, queue[4])      -- whether there are any

  local refs, spent, skipped, lane = {}, 0, 0, 'online'

  -- Of what is queued and under way a stream takes no more than its part of the speed of all: callers that come back
  -- together would otherwise be served together by one stream again and again, while the others have nothing to do.
  -- Measured with 32 connections: 561 and 588 queries/s instead of 497 and 509.
  -- One that is alone in its process stands for all of it, by the speed that the process reported: what it has measured
  -- since would make the only worker leave something to nobody.
  -- Of bulk work it takes half its part: claims of several seconds become smaller towards the end of the work, so that
  -- the streams end together (guided self-scheduling, Polychronopoulos and Kuck 1987).
  local total_rate = tonumber(queue[5] or 0)
  local open_costs = {online = tonumber(queue[6] or 0), bulk = tonumber(queue[7] or 0)}
  open_costs.large = open_costs.online
  if alone and rate > 0 then rate = math.ceil(tonumber(call('HGET', RATES, string.match(worker, '^[^/]*')) or 0)) end
  if rate > 0 and rate < total_rate then
    for name, most in pairs(room) do
      local part = open_costs[name] * rate / total_rate
      room[name] = math.min(most, math.ceil(name == 'bulk' and part / 2 or part))
    end
  end

  -- A call whose caller has gone, or goes before it can be answered, is wanted by nobody unless it is repeated. Those who wait
  -- longer go first: with more work than can be done each would be served at the moment at which its caller gives up. Its task
  -- goes behind the others of its owner, once per claim.
  local aside, put_aside = {}, 0
  local function goes_behind(id, deadline, created, line, owner)
    local patience = math.min(SERVED_MS, (deadline - created - UNWANTED_MS) / 4)
    if line ~= 'online' or deadline - NOW > UNWANTED_MS + patience or aside[id] or put_aside >= MAX_ASIDE then return false end
    local last = call('ZREVRANGE', owner_key(line, owner), 0, 0, 'WITHSCORES')[2]
    if not last then return false end     -- there is no other
    call('ZADD', owner_key(line, owner), int(tonumber(last) + 1), id)
    aside[id], put_aside = true, put_aside + 1
    return true
  end

  -- A unit is large if it has several texts and fills a usual claim of the online lane by itself: it is part of a list, whose
  -- caller waits for the whole of it. A claim has large units only or none. It has more of them, because passes over more texts
  -- are padded less. Between its passes a worker looks for small units, so these do not wait for its end.
  local function large(u, line) return line == 'online' and u.items > 1 and u.cost >= online_budget end
  local of_large = false                  -- this claim

  -- Takes the next unit of the task at the head of an owner's line. Returns its cost, 0 when the task was over, nil when
  -- the unit does not fit any more.
  local function take(id, tag, line, owner)
    local key = task_key(id)
    local f = call('HMGET', key, 'state', 'deadline', 'next', 'units', 'back', 'options', 'lane',
      'made_by', 'trace', 'listed', 'created')
    if not f[1] or not OPEN[f[1]] then skipped = skipped + 1; return 0 end
    if f[2] and tonumber(f[2]) <= NOW then end_task(id, 'expired'); skipped = skipped + 1; return 0 end
    if f[8] and f[8] ~= serves then end_task(id, 'model_changed'); skipped = skipped + 1; return 0 end
    if f[2] and not f[10] and goes_behind(id, tonumber(f[2]), tonumber(f[11]), line, owner) then return 0 end
    local next_fresh, units, back = tonumber(f[3]), tonumber(f[4]), tonumber(f[5])
    local came_back = suspect and suspects_key(id) or back_key(id)
    local uid = (suspect or back > 0) and call('LINDEX', came_back, 0) or int(next_fresh)
    local raw = call('HMGET', units_key(id), 'u' .. uid, 'p' .. uid)
    local u = unit_record(raw[1])
    if #refs == 0 then
      of_large = large(u, line)
      if of_large then room.online = room.large end
    elseif large(u, line) ~= of_large or spent + u.cost > room[line] then
      call('ZADD', owner_key(line, owner), tag, id)   -- keeps its turn for the next claim
      return nil
    end
    if suspect then call('LPOP', came_back)
    elseif back > 0 then call('LPOP', came_back); back = back - 1
    else next_fresh = next_fresh + 1 end
    u.attempts, u.token = u.attempts + 1, token
    call('HSET', units_key(id), 'u' .. uid, unit_text(u))
    if f[1] == 'queued' then
      call('HSET', key, 'next', int(next_fresh), 'back', int(back), 'state', 'in_progress', 'started', int(NOW))
    else
      call('HSET', key, 'next', int(next_fresh), 'back', int(back))
    end
    refs[#refs + 1] = id .. ' ' .. uid
    spent, lane = spent + u.cost, f[7]
    hand_out(id, uid, u, u.root == uid and raw[2] or nil, f[6], f[9], owner)
    local more = back > 0 or next_fresh < units
    if suspect then more = call('EXISTS', came_back) == 1 end
    if more then call('ZADD', owner_key(line, owner), int(tag + u.cost), id) end
    return u.cost
  end

  -- The task that is next in an owner's line leaves it, to be taken; and the owner's virtual time then, which is the tag of the
  -- first one. A look for small units passes over lists, which are tasks as large as a large unit. It does not even move them,
  -- as a write is an fsync. If virtual time followed what a look takes, it would run ahead of the lists, and fall back later.
  local passed = {}                       -- by this look
  local function next_of(line, owner)
    if not small_only then
      local head = call('ZPOPMIN', owner_key(line, owner))
      return head[1], tonumber(head[2]), tonumber(head[2])
    end
    local heads = call('ZRANGE', owner_key(line, owner), 0, MAX_PASSED_OVER - 1, 'WITHSCORES')
    for i = 1, #heads, 2 do
      local id = heads[i]
      if not passed[id] then
        local f = call('HMGET', task_key(id), 'total', 'cost')
        if not (f[1] and large({items = tonumber(f[1]), cost = tonumber(f[2])}, line)) then
          call('ZREM', owner_key(line, owner), id)
          return id, tonumber(heads[i + 1]), tonumber(heads[2])
        end
        passed[id] = true
      end
    end
    return nil, nil, tonumber(heads[2])
  end

  local clocks = {online = tonumber(queue[8] or 0), bulk = tonumber(queue[9] or 0), suspects = tonumber(queue[10] or 0)}
  local changes = {}                      -- of the queue
  local function change(name, value) changes[#changes + 1] = name; changes[#changes + 1] = int(value) end
  local function fill(lane)
    local line, clock = {}, clocks[lane]
    local heads = call('ZRANGE', lane_key(lane), 0, 31, 'WITHSCORES')
    for i = 1, #heads, 2 do line[#line + 1] = {name = heads[i], pass = tonumber(heads[i + 1])} end
    while #refs < max_units and skipped < MAX_SKIPPED and bytes < MAX_BYTES
      and (#refs == 0 or spent < room[lane]) do
      local owner
      for _, o in ipairs(line) do
        if not o.empty and (not owner or o.pass < owner.pass) then owner = o end
      end
      if not owner then break end
      owner.looked_at = true
      local id, tag, time = next_of(lane, owner.name)
      if not id then
        if time then break end              -- large units alone, and it is the turn of their owner
        owner.empty = true
      else
        local cost = take(id, tag, lane, owner.name)
        if not cost then break end
        if cost > 0 then
          -- Of large units the first one counts: their owner takes turns in advance, which others have meanwhile in looks.
          if not of_large or #refs == 1 then clock = math.max(clock, owner.pass) end
          owner.pass, owner.time, owner.served = owner.pass + cost, time, true
        end
      end
    end
    for _, o in ipairs(line) do
      if o.served then
        change('pass_' .. lane .. ':' .. o.name, o.pass)
        change('tvt_' .. lane .. ':' .. o.name, o.time)
      end
      if o.looked_at then
        if call('EXISTS', owner_key(lane, o.name)) == 0 then call('ZREM', lane_key(lane), o.name)
        elseif o.served then call('ZADD', lane_key(lane), int(o.pass), o.name) end
      end
    end
    if #refs > 0 then change('vt_' .. lane, clock) end
  end

  local bulk_waits, online_waits = call('ZCARD', lane_key('bulk')) > 0, call('ZCARD', lane_key('online')) > 0
  local credit = bulk_waits and tonumber(queue[11] or 0) or 0
  if bulk_waits and not online_only and (credit >= (BULK_SHARE - 1) * online_budget or not online_waits) then
    lane = 'bulk'
  end
  fill(suspect and 'suspects' or lane)
  if #refs == 0 and not online_only and not suspect then
    lane = lane == 'online' and 'bulk' or 'online'
    fill(lane)
  end

  if #refs > 0 then
    if lane == 'bulk' then              -- what it took beyond its share it owes, unless nobody else wanted it
      credit = credit - (BULK_SHARE - 1) * spent
      if not online_waits then credit = math.max(0, credit) end
    elseif bulk_waits then credit = credit + spent end
    -- A suspect is charged to nobody: whoever takes it sees to its share, which is one of time.
    if not suspect then change('credit', credit) end
    call('SADD', claim_key(token), unpack(refs))      -- at most 1,000 of them: unpack fails above about 8,000
    call('ZADD', LEASES, int(NOW + lease_ms), token)
    if not leases or not queue[4] then change('last', NOW) end
    change('n_claims', tonumber(queue[12] or 0) + 1)
    call('HSET', S, unpack(changes))
    out[4] = lane
  end
  local suspects = call('ZCARD', lane_key('suspects'))
  if suspects + call('ZCARD', lane_key('online')) + call('ZCARD', lane_key('bulk')) > 0 then
    out[1], out[3] = wake(), 1
  elseif #refs == 0 and linger_ms > 0 and not online_only and not suspect then
    local wait = linger_ms
    local due = leases and call('ZRANGE', LEASES, 0, 0, 'WITHSCORES') or {}
    if due[2] then wait = math.max(1, math.min(wait, tonumber(due[2]) - NOW)) end
    call('ZADD', LINGER, int(NOW + wait + 250), worker)   -- outlasts the wait: never blocked without being registered
    out[2] = wait
  end
  out[5] = suspects > 0 and 1 or 0
  return out
end

-- A stream that waits has asked already. So SUBMIT does that CLAIM, and sends its reply, if what has come is the only open
-- work: the caller waits for one call and one fsync less. A stream that gets no such message asks again with its token.
local function hand_over()              -- whether a stream has it now
  local last = call('ZREVRANGE', LINGER, 0, 0, 'WITHSCORES')
  local stream = last[1]
  if not stream or tonumber(last[2]) <= NOW then return false end
  local request = asked_by(stream)
  if not request then return false end
  request[LINGER_MS], request[RANG] = '0', '0'  -- it does not wait once more, and has heard no bell
  local reply = claim(unpack(request))
  settled()
  announce()
  if not reply[6] then
    call('PUBLISH', Q .. ':wake:' .. stream, 'work')  -- it lingers no more, and finds out by itself
    return false
  end
  local parts = {request[TOKEN]}
  local function put(part) parts[#parts + 1] = tostring(part) end
  for i = 1, 5 do put(reply[i]) end
  for i = 6, #reply do
    for _, part in ipairs(reply[i]) do put(part) end
  end
  if call('PUBLISH', Q .. ':wake:' .. stream, packed(parts)) > 0 then return true end
  drop_claim(request[TOKEN], true)      -- nobody is there
  return false
end
