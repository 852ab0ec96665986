-- Wake-up: when a bell message is due, who lingers, and which workers live.
local BELL_MS = 1000        -- a bell is believed this long, doubling with each unanswered bell up to 32 times

local function bell_due()               -- 1: the caller must send the bell message, which counts as sent from here on
  local bell = call('HMGET', S, 'bell', 'rings')
  local at, rings = tonumber(bell[1] or ''), tonumber(bell[2] or 0)
  if at and NOW >= at and NOW - at < BELL_MS * 2 ^ math.min(math.max(rings - 1, 0), 5) then return 0 end
  call('HSET', S, 'bell', int(NOW), 'rings', rings + 1)
  count('rings', 1)
  return 1
end
local function stop_lingering(worker)   -- none of its streams waits any more
  for _, name in ipairs(call('ZRANGE', LINGER, 0, -1)) do
    if string.match(name, '^[^/]*') == worker then call('ZREM', LINGER, name) end
  end
end
-- The CLAIM with which a stream lingers: its arguments, by which SUBMIT may repeat it. They outlast the wait: whether the
-- stream still waits, says LINGER. Scripts of several versions run beside each other, so they say what they are.
local ASKED_AS, ASKED_MS = 2, 60000     -- another number for other arguments of CLAIM; how long they are kept
local TOKEN, LINGER_MS, RANG = 2, 7, 8  -- places of some of them
local function ask_key(stream) return Q .. ':asks:' .. stream end
local function asks(stream, request)
  call('SET', ask_key(stream), cjson.encode({as = ASKED_AS, request = request}), 'PX', ASKED_MS)
end
local function asked_by(stream)         -- nil: of another version, or gone
  local asked = cjson.decode(call('GET', ask_key(stream)) or '{}')
  return asked.as == ASKED_AS and asked.request or nil
end
local function wake_lingerer()          -- true: a live socket got the word
  for _ = 1, 16 do
    local worker = call('ZPOPMAX', LINGER)
    if not worker[1] then return false end
    if tonumber(worker[2]) > NOW and call('PUBLISH', Q .. ':wake:' .. worker[1], 'work') > 0 then return true end
  end
  return false
end
local function wake()
  if wake_lingerer() then return 0 end
  return bell_due()
end

-- The rate is the sum over live workers; the last known one is kept. `absent` is when the last of them went.
local function prune_workers(left)      -- left: one has just said that it stops
  call('ZREMRANGEBYSCORE', LINGER, '-inf', int(NOW))  -- those that died while they waited
  local gone = call('ZRANGEBYSCORE', WORKERS, '-inf', int(NOW), 'WITHSCORES')
  for i = 1, #gone, 2 do
    call('ZREM', WORKERS, gone[i])
    call('HDEL', RATES, gone[i])
  end
  if (left or #gone > 0) and call('EXISTS', WORKERS) == 0 then
    call('HSET', S, 'absent', int(left and NOW or tonumber(gone[#gone])))
  end
  local sum = 0
  for _, rate in ipairs(call('HVALS', RATES)) do sum = sum + tonumber(rate) end
  if sum > 0 then call('HSET', S, 'rate', int(math.max(sum, 1))) end
end
