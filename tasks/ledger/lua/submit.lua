-- Stores one task whole, or finds the one its alias names.
-- uses: accounts admission enqueue limits turns wakeup
-- may use: claiming hand_over
-- wakes: its end wakes the steppers of documents workers. answer_to: the process that waits for its result, or ''.
-- Behind the arguments by name, per unit: items cost payload
-- tokens_per_minute queued_tokens open_jobs: limits of the owner's key, '' where it has none.
-- reply: {'ok' | 'joined', id, bell due, what the key may still bring (key_room), where it has limits} | {'conflict'}
--      | {'full', seconds until there is room, seconds of work before it}
--      | {'memory' | 'share', seconds until there is room}
--      | {'key', name of a limit, its number, what counts against it, seconds until there is room or -1: never}
local id, lane, owner, deadline_in, ttl, options, meta, alias, digest, join, max_backlog_s, default_rate, max_bytes,
  max_memory, vector_bytes, listed, share, wakes, trace, answer_to,
  tokens_per_minute, queued_tokens, open_jobs = named(23)
deadline_in, vector_bytes = tonumber(deadline_in), tonumber(vector_bytes)
local UNITS = FIRST + 24       -- of the first one's items
local MAX_HANDED = 16384     -- bytes of a text: a subscriber may be slow
local JOIN_MS = 5000         -- a completed task is joined while its result lives this much longer

local limits = {tokens_per_minute = tonumber(tokens_per_minute), queued_tokens = tonumber(queued_tokens),
  open_jobs = tonumber(open_jobs)}
local limited = next(limits) ~= nil

local function answer(how, task, bell, q)
  if not limited then return {how, task, bell} end
  return {how, task, bell, key_room(limits, q or queued_beside(lane, owner, default_rate))}
end
local function found(how, task)         -- stores nothing new, so a full Redis does not matter
  allowed_when_full()
  return answer(how, task, ready() > 0 and wake() or 0)
end

if alias ~= '' then
  local known = call('GET', alias_key(owner, alias))
  if known then
    local other, of = string.match(known, '^(%S+) (%S+)$')
    local f = call('HMGET', task_key(other), 'state', 'deadline', 'ttl', 'answer')
    if f[1] and join == '0' then
      if of ~= digest then return {'conflict'} end
      return answer('joined', other, 0)
    end
    if f[1] and of == digest and OPEN[f[1]] then
      -- Requests of two processes wait for it: all hear of its end.
      if f[4] and f[4] ~= answer_to then call('HDEL', task_key(other), 'answer') end
      if f[2] and deadline_in > 0 and NOW + deadline_in > tonumber(f[2]) then
        allowed_when_full()
        call('HSET', task_key(other), 'deadline', int(NOW + deadline_in))
        call('ZADD', DEADLINES, int(NOW + deadline_in), other)
        if call('PTTL', alias_key(owner, alias)) >= 0 then
          call('PEXPIRE', alias_key(owner, alias), int(deadline_in + f[3]))
        end
      end
      return found('joined', other)
    end
    -- Not in its last moments: the result must not vanish between this answer and the caller's next read. Nor is it kept
    -- for longer: what is asked for again and again would never be encoded again, by another model neither.
    if f[1] == 'completed' and of == digest and call('PTTL', task_key(other)) >= math.min(JOIN_MS, f[3] / 2) then
      return answer('joined', other, 0)
    end
  end
end
if call('EXISTS', task_key(id)) == 1 then return found('ok', id) end  -- this very call, again

local units = (#ARGV - UNITS + 1) / 3
local total, cost, bytes = measure(UNITS, units)
local reserve = room_for(total, vector_bytes)
local queue = queued_beside(lane, owner, default_rate)
local full = limited and key_full(limits, queue, cost, listed == '1')
  or backlog_full(queue, cost, tonumber(max_backlog_s) * queue.rate)
  or bytes_full(queue, bytes, reserve, tonumber(max_bytes), tonumber(max_memory), tonumber(share))
if full then return full end

local refusal = store_task({id = id, lane = lane, owner = owner, ttl = ttl, options = options, meta = meta, alias = alias,
  digest = digest, listed = listed == '1', wakes = wakes == '1', trace = trace, answer = answer_to,
  deadline_in = deadline_in, units = units, at = UNITS, total = total, cost = cost, bytes = bytes,
  reserve = reserve, turn = queue.turn}, redis.pcall)
if refusal then
  if string.find(refusal, 'OOM', 1, true) then return {'memory', tostring(results_gone(bytes + reserve))} end
  return redis.error_reply('ERR ' .. refusal)
end
local used, limit = memory()
if used then call('SET', MEMORY, int(used + bytes) .. ' ' .. int(limit), 'KEEPTTL') end  -- until WATCH looks again
if limits.tokens_per_minute then take_from(token_bucket(owner, limits.tokens_per_minute), cost) end
queue.mine, queue.all = queue.mine + cost, queue.all + cost
-- With other work under way, what comes meanwhile is claimed together.
local handed = queue.cost == 0 and lane == 'online' and units == 1 and bytes <= MAX_HANDED and hand_over()
return answer('ok', id, handed and 0 or wake(), queue)
