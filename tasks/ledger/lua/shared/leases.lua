-- Leases: how they expire, and what becomes of a claim that is given back or lost.
-- uses: ending suspects
local STILL_MS = 5000       -- somebody looks at the clock more often than this, or it was no time in which work could move
local MAX_LEASE_MS = 600000 -- a lease further away than this is the work of a clock that jumped

local function drop_claim(token, released)          -- everything the claim still holds; O(its units)
  local refs = call('SMEMBERS', claim_key(token))
  table.sort(refs)                                  -- the same order whichever server this is
  for _, ref in ipairs(refs) do
    local id, uid = string.match(ref, '^(%S+) (%S+)$')
    unit_returns(id, uid, token, released)
  end
  call('DEL', claim_key(token))
  call('ZREM', LEASES, token)
  settled()
end
-- The worker of this claim died, or hangs. A suspect runs alone: what its worker held beside it stood still, which is
-- nobody's fault, and comes back as it was. O(number of claims).
local function lose_claim(token)
  local worker, beside, alone = string.match(token, '^[^/]*'), {}, false
  local function of_suspect(other)
    if call('SCARD', claim_key(other)) ~= 1 then return false end
    local id, uid = string.match(call('SMEMBERS', claim_key(other))[1], '^(%S+) (%S+)$')
    local raw = call('HGET', units_key(id), 'u' .. uid)
    return raw and unit_record(raw).attempts > 1
  end
  for _, other in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    if string.match(other, '^[^/]*') == worker then
      if of_suspect(other) then alone = true else beside[#beside + 1] = other end
    end
  end
  if alone then
    for _, other in ipairs(beside) do drop_claim(other, true) end
  end
  if not call('ZSCORE', LEASES, token) then return end  -- it stood still itself
  drop_claim(token, false)
  count('lost_leases', 1)
end
-- Leases are for those who live, and while Redis or its clock stood still nobody could renew one: what has passed
-- since somebody looked, beyond what may pass between two looks, does not count. Where nobody looked because nobody
-- was there, work comes back a lease later than it might.
local function pass_over(last, note)    -- last: when somebody looked, as stored
  last = tonumber(last or '')
  local gap = last and NOW - last or 0
  if gap > STILL_MS then
    local leases = call('ZRANGE', LEASES, 0, -1, 'WITHSCORES')
    for i = 1, #leases, 2 do call('ZADD', LEASES, int(tonumber(leases[i + 1]) + gap - STILL_MS), leases[i]) end
  end
  if note or gap > STILL_MS then call('HSET', S, 'last', int(NOW)) end
end
local function look_at_clock(note)
  if call('EXISTS', LEASES) == 0 then
    call('HDEL', S, 'last')
    return
  end
  pass_over(call('HGET', S, 'last'), note)
end
-- Expired leases; also heals a clock that went back. last: as stored; nil: somebody looks at the clock just now.
-- Returns whether there were leases.
local function reap(limit, last)
  if call('EXISTS', LEASES) == 0 then
    if last then look_at_clock() end
    return false
  end
  pass_over(last)
  local far = call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')
  if tonumber(far[2]) > NOW + MAX_LEASE_MS then call('ZADD', LEASES, int(NOW + 30000), far[1]) end
  local due = call('ZRANGEBYSCORE', LEASES, '-inf', int(NOW), 'LIMIT', 0, limit)
  for _, token in ipairs(due) do lose_claim(token) end
  return true
end
