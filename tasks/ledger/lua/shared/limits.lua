-- Limits of one owner's own, where its key has any.
-- uses: owner_account
--
-- A bucket is kept as the moment at which it is full again (GCRA): what is taken moves this moment on by as long as it takes
-- to come back. A moment further away than the window is of a clock that went back, or of a lower limit.
local SLACK_MS = 10000      -- a bucket outlives the moment at which it is full: for a clock that stands still in between
local function rate_key(owner) return R .. ':rate:' .. owner end
local function bucket(owner, what, most, window_ms)  -- it holds `most`, which come back within the window
  local full = tonumber(call('HGET', rate_key(owner), what) or 0)
  return {key = rate_key(owner), what = what, most = most, window = window_ms, each = window_ms / most,
    full = math.min(math.max(full, NOW), NOW + window_ms)}
end
local function bucket_wait(b, n)        -- milliseconds until it holds n
  local wait = b.full + n * b.each - NOW - b.window
  return wait > 0.5 and wait or 0       -- sums of fractions
end
local function bucket_left(b) return math.floor((NOW + b.window - b.full) / b.each + 1e-6) end
local function take_from(b, n)          -- writes
  b.full = b.full + n * b.each
  call('HSET', b.key, b.what, string.format('%.3f', b.full))
  local life = b.full - NOW + SLACK_MS
  if call('PTTL', b.key) < life then call('PEXPIRE', b.key, int(math.ceil(life))) end
end
local function token_bucket(owner, per_minute) return bucket(owner, 'tokens', per_minute, 60000) end

-- Seconds until so much of an owner's own work in a lane is done. Others take turns with it, task by task: those before it in
-- the lane take one more than those behind it.
local function own_work(q, cost)
  local turn = q.tasks > 0 and math.min(cost, q.mine / q.tasks) or cost
  local first = call('ZRANK', lane_key(q.lane), q.owner) or 0
  local before = cost + math.min(q.all - q.mine, first * turn + q.others * (cost - turn))
  if q.lane == 'bulk' then before = before + math.min(q.cost - q.all, 7 * before) end  -- as claim.lua shares
  return before / q.rate
end
local function open_jobs_of(owner)      -- tasks that are listed, batches and ingestions
  return tonumber(call('GET', open_key(owner)) or 0)
    + numbers(R .. ':owner:' .. owner).jobs
end
local NOBODY_KNOWS_S = 60               -- when a batch or an ingestion ends
-- The reply that refuses one more job, or nil. q: what the owner has queued beside it; nil: it is no task.
local function jobs_full(owner, most, q)
  local open = most and open_jobs_of(owner) or 0
  if not most or open < most then return end
  local wait = q and q.tasks > 0 and own_work(q, q.mine / q.tasks) or NOBODY_KNOWS_S
  return {'key', 'open_jobs', int(most), int(open), tostring(wait)}
end
-- limits: tokens_per_minute, queued_tokens, open_jobs, each a number or nil. The reply that refuses a task of so much cost,
-- with the seconds until it is taken, -1: never; or nil.
local function key_full(limits, q, cost, listed)
  if limits.tokens_per_minute then
    local b = token_bucket(q.owner, limits.tokens_per_minute)
    local wait = cost > b.most and -1000 or bucket_wait(b, cost)
    if wait ~= 0 then return {'key', 'tokens_per_minute', int(b.most), int(cost), tostring(wait / 1000)} end
  end
  if limits.queued_tokens and q.mine + cost > limits.queued_tokens then
    local wait = cost > limits.queued_tokens and -1 or own_work(q, q.mine + cost - limits.queued_tokens)
    return {'key', 'queued_tokens', int(limits.queued_tokens), int(q.mine), tostring(wait)}
  end
  return listed and jobs_full(q.owner, limits.open_jobs, q) or nil
end
-- What the owner may still bring in one task: limit, tokens left, seconds until all of it is left. Of the limit that leaves least.
local function key_room(limits, q)
  local limit, left, reset
  if limits.tokens_per_minute then
    local b = token_bucket(q.owner, limits.tokens_per_minute)
    limit, left, reset = b.most, bucket_left(b), (b.full - NOW) / 1000
  end
  if limits.queued_tokens and (not left or limits.queued_tokens - q.mine < left) then
    limit, left, reset = limits.queued_tokens, math.max(0, limits.queued_tokens - q.mine), own_work(q, q.mine)
  end
  return limit and {int(limit), int(left), tostring(reset)}
end
