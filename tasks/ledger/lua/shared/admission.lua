-- Whether a task may wait; if not, what is replied, with the seconds after which there may be room (Retry-After).
-- uses: task_record
local LOOK = 64                         -- at ends of tasks, before a refusal for lack of memory
-- A task is judged by the work that is served before its own end: each other task of its owner gets no more than this one before
-- that, and each other owner no more than this one. An owner with nothing queued may bring any one task.
local function backlog_full(q, lane, mine, open, cost, max_s, rate)
  local all, limit = q['cost_' .. lane], max_s * rate
  local others = q['owners_' .. lane] - (open > 0 and 1 or 0)
  local own = math.min(mine, open * cost)
  local before = own + math.min(all - mine, others * (own + cost))
  local above, crowd = before + cost - limit, all - 2 * limit
  -- Tasks that come ever smaller find ever less work before them; so a lane with twice the limit takes no task of more than a
  -- second of work from an owner who has his share.
  if mine > 0 and crowd > 0 and cost > rate then
    above = math.max(above, math.min(crowd, (others + 1) * (mine + cost) - limit))
  end
  if above <= 0 or mine <= 0 then return end
  above = math.max(above, above * mine / math.max(own, 1))  -- among larger tasks the work before it shrinks more slowly
  local rest = mine + math.min(all - mine, others * mine)   -- when nothing of the owner is left it is let in at last
  return {'full', tostring(math.min(above, rest) / rate), tostring(before / rate)}
end
-- Dynamic thresholds (Choudhury and Hahne 1998): an owner may fill `share` times what he leaves free; 0: all of it.
local function over(room, mine, need, share)
  if need > room then return need - room end
  local mine_over = mine + need - share * (room - need)
  return share > 0 and mine > 0 and mine_over > 0 and mine_over / (1 + share), true
end
local function forgotten_s(owner, n)    -- seconds until ended tasks of this owner (nil: of anybody) that fill n bytes are gone
  local entries = call('ZRANGEBYSCORE', DUE, NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, LOOK)
  for i = 1, #entries, 2 do
    local x = task(string.sub(entries[i], 6))
    if x and not OPEN[x.t[STATE]] and (not owner or x.t[OWNER] == owner) then n = n - TASK_BYTES - x.t[KEPT] end
    if n <= 0 then return (entries[i + 1] - NOW) / 1000 end
  end
  return 1e6
end
local function bytes_full(q, a, need, payload, max_bytes, max_memory, share, owner, rate)
  local work_s = (q.cost_online + q.cost_bulk) / rate
  local many = q.bytes > 0 and over(max_bytes - q.bytes, a.bytes, payload, share)
  if many then return {'full', tostring(math.min(1, many / q.bytes) * work_s), tostring(work_s)} end
  if q.limit == 0 then return end
  local n, of_owner = over(q.limit * max_memory / 100 - q.used - q.reserved, a.bytes, need, share)
  if not n then return end
  local done = n <= q.bytes and n / q.bytes * work_s or 1e6
  return {of_owner and 'share' or 'memory', tostring(math.min(done, forgotten_s(of_owner and owner or nil, n)))}
end
-- Limits of the owner's key. A bucket is the moment at which it is full again (GCRA).
local function key_full(q, a, n, mine, open, rate)
  local most, turn = tonumber(n.per_minute), math.max(1, q['owners_' .. n.lane])
  if most then
    if n.cost > most then return {'key', 'tokens_per_minute', most, n.cost, '-1'} end
    n.full = math.min(math.max(a.tokens, NOW), NOW + 60000) + n.cost * 60000 / most
    local wait = n.full - NOW - 60000
    if wait > .001 then return {'key', 'tokens_per_minute', most, n.cost, tostring(wait / 1000)} end  -- less is rounding
  end
  most = tonumber(n.queued)
  if most and mine + n.cost > most then
    local wait = n.cost > most and -1 or (mine + n.cost - most) * turn / rate
    return {'key', 'queued_tokens', most, mine, tostring(wait)}
  end
  most = tonumber(n.jobs)
  if most and n.listed == '1' and a.jobs >= most then
    return {'key', 'open_jobs', most, a.jobs, tostring(open > 0 and mine / open * turn / rate or 60)}
  end
end
