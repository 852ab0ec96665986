-- Stores one task whole, or finds the one its alias names.
-- own: id lane owner deadline_in ttl options meta alias digest join max_backlog_s default_rate max_bytes max_memory
--      vector_bytes listed share (as many times what is free as one owner may fill; 0: all of it)
--      wakes (its end wakes the steppers of documents workers), then per unit: items cost payload
-- reply: {'ok' | 'joined', id, ring} | {'conflict'} | {'full', seconds until there is room, seconds of work before it}
--      | {'memory' | 'share', seconds until there is room}
local id, lane, owner = arg(1), arg(2), arg(3)
local deadline_in, ttl, options, meta = tonumber(arg(4)), arg(5), arg(6), arg(7)
local alias, digest, join = arg(8), arg(9), arg(10) == '1'
local listed = arg(16) == '1'
local share = tonumber(arg(17))
local UNITS = FIRST + 19       -- of the first one's items
local JOIN_MS = 5000         -- a completed task is joined while its result lives this much longer
local UNWANTED_MS = 10000    -- a waiter keeps the end of its task further away than this (LINGERING_INTEREST_S)
local LOOK = 256             -- at so many tasks or entries at most, and only before a refusal
local LOOK_AHEAD = 64        -- at so many more, for the time that is told
local CROWDED_S = 1          -- of work: a larger task is refused when its lane holds twice the limit
local NEVER_S = 1e6

local function found(how, task)         -- stores nothing new, so a full Redis does not matter
  allowed_when_full()
  return {how, task, ready() > 0 and wake() or 0}
end

if alias ~= '' then
  local known = call('GET', alias_key(owner, alias))
  if known then
    local other, of = string.match(known, '^(%S+) (%S+)$')
    local f = call('HMGET', task_key(other), 'state', 'deadline', 'ttl')
    if f[1] and not join then
      if of ~= digest then return {'conflict'} end
      return {'joined', other, 0}
    end
    if f[1] and of == digest and OPEN[f[1]] then
      if f[2] and deadline_in > 0 and NOW + deadline_in > tonumber(f[2]) then
        allowed_when_full()
        call('HSET', task_key(other), 'deadline', int(NOW + deadline_in))
        call('ZADD', DEADLINES, int(NOW + deadline_in), other)
      end
      return found('joined', other)
    end
    -- Not in its last moments: the result must not vanish between this answer and the caller's next read. Nor is it kept
    -- for longer: what is asked for again and again would never be encoded again, by another model neither.
    if f[1] == 'completed' and of == digest and call('PTTL', task_key(other)) >= math.min(JOIN_MS, f[3] / 2) then
      return {'joined', other, 0}
    end
  end
end
if call('EXISTS', task_key(id)) == 1 then return found('ok', id) end  -- this very call, again

local units = (#ARGV - UNITS + 1) / 3
local total, cost, bytes = measure(UNITS, units)

-- Admission. A task is judged by the work that is served before its own end, not by all that is queued: tasks of one
-- owner take turns by cost, so each of them gets no more than this one before it ends, and so do owners. An owner with
-- nothing queued may bring any one task; otherwise it would never run.
local s = call('HMGET', S, 'cost_' .. lane, 'rate', 'bytes', 'cost_' .. lane .. ':' .. owner,
  'tasks_' .. lane .. ':' .. owner, 'owners_' .. lane, 'bytes:' .. owner, 'cost_online', 'cost_bulk')
local function number(i) return tonumber(s[i] or 0) end
local rate = tonumber(s[2] or arg(12))
local queued = {all = number(1), mine = number(4), tasks = number(5)}
local others = number(6) - (queued.tasks > 0 and 1 or 0)
local limit_cost = tonumber(arg(11)) * rate
-- Tasks that come ever smaller would find ever less work before them, however much there is: what one owner brings adds
-- up. So a lane that holds twice the limit takes no task of more than CROWDED_S from an owner who has its share.
local function crowded(q)               -- estimated tokens until that lets it in
  local over = q.all - 2 * limit_cost
  if q.mine <= 0 or over <= 0 or cost <= CROWDED_S * rate then return 0 end
  return math.min(over, (others + 1) * (q.mine + cost) - limit_cost)
end
local function wait_of(q)               -- seconds until it is let in, and of work before it
  local mine = math.min(q.mine, q.tasks * cost)
  local before = mine + math.min(q.all - q.mine, others * (mine + cost))
  local above = before + cost - limit_cost
  local far = crowded(q)
  if above <= 0 and far <= 0 then return 0 end
  -- Among larger tasks the work before it shrinks as they end, more slowly than they are served. It is let in
  -- at last when nothing of the owner's is left.
  above = math.max(far, above * math.max(1, q.mine / math.max(mine, 1)))
  return math.min(above, q.mine + math.min(q.all - q.mine, others * q.mine)) / rate, before / rate
end
-- A task that is not listed has a caller who waits, until UNWANTED_MS before its end. From then on it does not count: it
-- ends unserved, or soon. Only what was looked at is taken off: others may be of another size, or of another lane.
local function without(q, other)
  local f = call('HMGET', task_key(other), 'lane', 'owner', 'cost', 'listed')
  if f[1] ~= lane or f[4] then return end
  q.all = q.all - f[3]
  if f[2] == owner then q.mine, q.tasks = q.mine - f[3], q.tasks - 1 end
end
local function wait_for_wanted(q)
  local soon = NOW + UNWANTED_MS
  local unwanted = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(soon), 'LIMIT', 0, LOOK)
  for _, other in ipairs(unwanted) do without(q, other) end
  local wait, before = wait_of(q)
  if wait == 0 then return 0 end
  local later = call('ZRANGEBYSCORE', DEADLINES, '(' .. int(soon), int(soon + wait * 1000), 'WITHSCORES', 'LIMIT', 0,
    LOOK_AHEAD)
  for i = 1, #later, 2 do
    without(q, later[i])
    wait = math.min(wait, math.max((later[i + 1] - soon) / 1000, (wait_of(q))))
  end
  return wait, before
end
if wait_of(queued) > 0 then
  local wait, before = wait_for_wanted(queued)
  if wait > 0 then return {'full', tostring(wait), tostring(before)} end
end

-- Bytes. What one owner fills must leave room for others (dynamic thresholds, Choudhury and Hahne 1998): however many
-- there are, whoever has little is let in.
local function over(room, mine, need)   -- bytes above what there is room for, of all or of this owner; nil: none
  if need > room then return need - room end
  if share > 0 and mine > 0 and mine + need > share * (room - need) then
    return (mine + need - share * (room - need)) / (1 + share), true
  end
end
local function worked_off(n)            -- seconds until so many bytes of queued texts are done
  return n <= number(3) and n / number(3) * (number(8) + number(9)) / rate or NEVER_S
end
local function expired(n, of_owner)     -- seconds until results that fill so much have expired
  local entries = call('ZRANGE', HELD_UNTIL, 0, LOOK - 1)
  for _, entry in ipairs(entries) do
    local ends, who = string.match(entry, '^(%d+) (.*)$')
    if not of_owner or who == owner then n = n - call('HGET', HELD, entry) end
    if n <= 0 then return (ends - NOW) / 1000 end
  end
  return NEVER_S
end
local many = number(3) > 0 and over(tonumber(arg(13)) - number(3), number(7), bytes)
if many then return {'full', tostring(worked_off(many)), tostring((number(8) + number(9)) / rate)} end
-- The vectors of accepted work need room too: it is reserved now, or running work could not be finished later.
local reserve = room_for(total, tonumber(arg(15)))
local used, limit = string.match(call('GET', MEMORY) or '', '^(%d+) (%d+)$')
if used and tonumber(limit) > 0 then
  local room = tonumber(limit) * tonumber(arg(14)) / 100 - tonumber(used) - tonumber(call('GET', RESERVED) or 0)
  local n, of_owner = over(room, tonumber(call('HGET', HELD, owner) or 0), bytes + reserve)
  if n then
    return {of_owner and 'share' or 'memory', tostring(math.min(expired(n, of_owner), worked_off(n)))}
  end
end

local refusal = store_task({id = id, lane = lane, owner = owner, ttl = ttl, options = options, meta = meta, alias = alias,
  digest = digest, listed = listed, wakes = arg(18) == '1', deadline_in = deadline_in, units = units, at = UNITS,
  total = total, cost = cost, bytes = bytes, reserve = reserve}, redis.pcall)
if refusal then
  if string.find(refusal, 'OOM', 1, true) then return {'memory', tostring(expired(bytes + reserve))} end
  return redis.error_reply('ERR ' .. refusal)
end
if used then call('SET', MEMORY, int(tonumber(used) + bytes) .. ' ' .. limit, 'KEEPTTL') end  -- until WATCH looks again
return {'ok', id, wake()}
