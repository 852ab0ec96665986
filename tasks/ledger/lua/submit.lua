-- Stores tasks whole, or finds those that their aliases name. Those that come together share what is read of their queue,
-- its sums, and the fsync.
-- uses: accounts admission enqueue limits turns wakeup
-- may use: claiming hand_over
-- wakes: its end wakes the steppers of documents workers. answer_to: the process that waits for its result, or ''.
-- For each task: the number of arguments that are its own, those by name, and per unit: items cost payload
-- tokens_per_minute queued_tokens open_jobs: limits of the owner's key, '' where it has none.
-- reply: for each task, {'ok' | 'joined', id, bell due, what the key may still bring (key_room), where it has limits}
--      | {'conflict'}
--      | {'full', seconds until there is room, seconds of work before it}
--      | {'memory' | 'share', seconds until there is room}
--      | {'key', name of a limit, its number, what counts against it, seconds until there is room or -1: never}
local NAMED = 23
local MAX_HANDED = 16384     -- bytes of a text: a subscriber may be slow
local JOIN_MS = 5000         -- a completed task is joined while its result lives this much longer

local function task_from(at, n)         -- of n arguments behind ARGV[at]
  local id, lane, owner, deadline_in, ttl, options, meta, alias, digest, join, max_backlog_s, default_rate, max_bytes,
    max_memory, vector_bytes, listed, share, wakes, trace, answer_to,
    tokens_per_minute, queued_tokens, open_jobs = named(NAMED, at)
  local limits = {tokens_per_minute = tonumber(tokens_per_minute), queued_tokens = tonumber(queued_tokens),
    open_jobs = tonumber(open_jobs)}
  local t = {id = id, lane = lane, owner = owner, ttl = ttl, options = options, meta = meta, alias = alias,
    digest = digest, joins = join == '1', listed = listed == '1', wakes = wakes == '1', trace = trace,
    answer = answer_to, deadline_in = tonumber(deadline_in), units = (n - NAMED) / 3, at = at + NAMED + 1,
    limits = next(limits) and limits, default_rate = default_rate, max_backlog_s = tonumber(max_backlog_s),
    max_bytes = tonumber(max_bytes), max_memory = tonumber(max_memory), share = tonumber(share)}
  t.total, t.cost, t.bytes = measure(t.at, t.units)
  t.reserve = room_for(t.total, tonumber(vector_bytes))
  return t
end

-- As of queued_beside, of the lane and owner of the last task. The rate that it assumes is the same for all tasks of a call.
local beside
local function queue_of(t)
  if not beside or beside.changed or beside.lane ~= t.lane or beside.owner ~= t.owner then
    write_sums()
    beside = queued_beside(t.lane, t.owner, t.default_rate)
  end
  return beside
end

local function answer(t, how, id)
  return {how, id, 0, t.limits and key_room(t.limits, queue_of(t)) or nil}
end
local to_wake = {}                      -- replies of tasks for which a stream is to be woken
local function found(t, how, id)
  local reply = answer(t, how, id)
  if ready() > 0 then to_wake[#to_wake + 1] = reply end
  return reply
end

-- The reply where a task is known already, or what is left to do for it; nil: it is new.
local function known(t)
  local entry = t.alias ~= '' and call('GET', alias_key(t.owner, t.alias))
  if entry then
    local other, of = string.match(entry, '^(%S+) (%S+)$')
    local f = call('HMGET', task_key(other), 'state', 'deadline', 'ttl', 'answer')
    if f[1] and not t.joins then
      if of ~= t.digest then return {'conflict'} end
      return answer(t, 'joined', other)
    end
    if f[1] and of == t.digest and OPEN[f[1]] then
      if t.deadline_in > UNWANTED_MS then wanted[other] = true end
      return nil, function()
        -- Requests of two processes wait for it: all hear of its end.
        if f[4] and f[4] ~= t.answer then call('HDEL', task_key(other), 'answer') end
        local ends = NOW + t.deadline_in
        if f[2] and t.deadline_in > 0 and ends > tonumber(call('HGET', task_key(other), 'deadline')) then
          call('HSET', task_key(other), 'deadline', int(ends))
          call('ZADD', DEADLINES, int(ends), other)
          if call('PTTL', alias_key(t.owner, t.alias)) >= 0 then
            call('PEXPIRE', alias_key(t.owner, t.alias), int(t.deadline_in + f[3]))
          end
        end
        return found(t, 'joined', other)
      end
    end
    -- Not in its last moments: the result must not vanish between this answer and the caller's next read. Nor is it kept
    -- for longer: what is asked for again and again would never be encoded again, by another model neither.
    if f[1] == 'completed' and of == t.digest and call('PTTL', task_key(other)) >= math.min(JOIN_MS, f[3] / 2) then
      return answer(t, 'joined', other)
    end
  end
  if call('EXISTS', task_key(t.id)) == 1 then   -- this very call, again
    return nil, function() return found(t, 'ok', t.id) end
  end
end

local lone                              -- nothing else was open when it came
-- The reply of a new task: it is let in and stored, or it is refused. Nil, with an error, where Redis refuses.
local function bring_in(t)
  local queue = queue_of(t)
  local full = t.limits and key_full(t.limits, queue, t.cost, t.listed)
    or backlog_full(queue, t.cost, t.max_backlog_s * queue.rate)
    or bytes_full(queue, t.bytes, t.reserve, t.max_bytes, t.max_memory, t.share)
  if full then return full end
  t.turn = queue.turn
  local refusal = store_task(t, redis.pcall)
  if refusal then
    if string.find(refusal, 'OOM', 1, true) then return {'memory', tostring(results_gone(t.bytes + t.reserve))} end
    return nil, refusal
  end
  if t.limits and t.limits.tokens_per_minute then take_from(token_bucket(t.owner, t.limits.tokens_per_minute), t.cost) end
  lone = queue.cost == 0 and t
  one_more_beside(queue, t.cost, t.bytes, t.bytes + t.reserve)
  filled = filled + t.bytes
  local reply = answer(t, 'ok', t.id)
  to_wake[#to_wake + 1] = reply
  return reply
end
local function write_all()
  write_sums()
  write_memory()
end

local replies, later = {}, {}
local at = FIRST + 1
while ARGV[at] do
  local n = tonumber(ARGV[at])
  local t = task_from(at, n)
  local reply, rest = known(t)
  if not reply and not rest then
    local refusal
    reply, refusal = bring_in(t)
    if refusal then
      write_all()                       -- of those that are stored
      return redis.error_reply('ERR ' .. refusal)
    end
  end
  replies[#replies + 1] = reply or false
  if rest then later[#replies] = rest end
  at = at + n + 1
end
write_all()
-- A full Redis lets tasks be joined, but after the first write of a script it refuses nothing any more. So this comes last.
if next(later) then
  allowed_when_full()
  for i = 1, #replies do
    if later[i] then replies[i] = later[i]() end
  end
end
-- With other work under way, what comes meanwhile is claimed together.
if lone and #replies == 1 and lone.lane == 'online' and lone.units == 1 and lone.bytes <= MAX_HANDED and hand_over() then
  return replies
end
for _, reply in ipairs(to_wake) do
  if not wake_lingerer() then
    reply[3] = bell_due()
    break
  end
end
return replies
