-- Stores tasks whole, or finds those that their aliases name. Each has a reply of its own, and counts for those behind it.
-- own: default_rate max_bytes share, then tasks (shared/store_task.lua)
-- reply: {'ok' | 'joined', id, what the key may still bring} | {'conflict'} | {'revoked'}
--   | {'full', seconds until there is room, seconds of work before it} | {'memory' | 'share', seconds}
--   | {'key', limit, its number, what counts, seconds or -1: never}; behind them the queues for which a bell is due
-- uses: admission store_task
local JOIN_MS = 5000                    -- a completed task is joined while its result lives this much longer
local default_rate, max_bytes, share = tonumber(ARGV[OWN]), tonumber(ARGV[OWN + 1]), tonumber(ARGV[OWN + 2])
local joined, again = {}, {}

local function barred(n)
  local a = account(n.owner, n.queue, n.lane)
  return (a.purged > 0 or a.revoked > 0) and {'revoked'}
end
local function known(n)                 -- the reply, and the open task to be joined; nil: it is new
  local entry = n.alias ~= '' and call('GET', R .. ':alias:' .. n.owner .. ':' .. n.alias)
  if entry then
    local id, of = string.match(entry, '^(%S+) (%S+)$')
    local x = task(id)
    if x and n.joins ~= '1' then return of == n.digest and {'joined', id} or {'conflict'} end
    if x and of == n.digest then
      local t = x.t
      if OPEN[t[STATE]] then return {'joined', id}, x end
      if t[STATE] == 'completed' and t[FAILED] == 0 and t[FINISHED] + t[TTL] - NOW >= math.min(JOIN_MS, t[TTL] / 2) then
        return {'joined', id}
      end
    end
  end
  if call('EXISTS', task_key(n.id)) == 1 then  -- this very call, again: whoever sleeps is woken
    again[#again + 1] = n.queue
    return {'ok', n.id}
  end
end
-- What the key may still bring: {limit, left, seconds until all of it is left}; nil: there is no limit.
local function key_room(n, a, cost, own_rate)
  local left
  if n.full then
    left = {tonumber(n.per_minute), math.floor((NOW + 60000 - n.full) * n.per_minute / 60000 + 1e-6),
      tostring((n.full - NOW) / 1000)}
  end
  local queued = tonumber(n.queued)
  if queued and (not left or queued - a[cost] < left[2]) then
    left = {queued, math.max(0, queued - a[cost]), tostring(a[cost] / own_rate)}
  end
  return left
end
local function bring_in(n)
  local q = queue(n.queue)
  local a, cost, open = account(n.owner, n.queue, n.lane)
  local rate = q.rate > 0 and q.rate or default_rate
  local need = TASK_BYTES + n.bytes + n.vector * n.total
  local full = key_full(q, a, n, a[cost], a[open], rate)
    or backlog_full(q, n.lane, a[cost], a[open], n.cost, tonumber(n.max_s), rate)
    or bytes_full(q, a, need, n.bytes, max_bytes, tonumber(n.max_memory), share, n.owner, rate)
  if full then return full end
  local refused = store(n, redis.pcall)
  if refused then
    if string.find(refused, 'OOM', 1, true) then return {'memory', tostring(forgotten_s(nil, need))} end
    return redis.error_reply(refused)
  end
  q.used = q.used + TASK_BYTES + n.bytes  -- until housekeeping looks again
  a.tokens = n.full or a.tokens
  return {'ok', n.id, key_room(n, a, cost, rate / math.max(1, q['owners_' .. n.lane]))}
end
local function prolong(x, n)            -- x is joined by n
  local t, ends = x.t, NOW + n.deadline_in
  tally(t, -1)
  if t[ANSWER] ~= n.answer then t[ANSWER] = '' end  -- requests of two processes wait: all are told
  if t[DEADLINE] > 0 and n.deadline_in > 0 and ends > t[DEADLINE] then
    t[DEADLINE], t[UNWANTED] = ends, 0
    call('ZADD', DUE, ends, 'task:' .. x.id)
    local alias = R .. ':alias:' .. t[OWNER] .. ':' .. t[ALIAS]
    if call('PTTL', alias) >= 0 then call('PEXPIRE', alias, n.deadline_in + t[TTL]) end
  end
  tally(t, 1)
  save_task(x)
  wakes[#wakes + 1] = t[IN_QUEUE]
end

local replies, at = {}, OWN + 3
while ARGV[at] do
  local n = task_from(at)
  local reply, x = barred(n), nil
  if not reply then reply, x = known(n) end
  if x then joined[#joined + 1] = {x, n} end
  reply = reply or bring_in(n)
  if reply.err then return reply end      -- no entry: connections learn from it that they lead to the wrong place
  replies[#replies + 1] = reply
  at = n.last + 1
end
-- A full Redis lets tasks be joined. After such a write it refuses nothing any more, so this comes last.
if #joined + #again > 0 then allowed_when_full() end
for _, name in ipairs(again) do wakes[#wakes + 1] = name end
for _, pair in ipairs(joined) do prolong(pair[1], pair[2]) end
for _, name in ipairs(#wakes > 0 and store_rest() or {}) do replies[#replies + 1] = name end
return replies
