-- Wake-up: a bell message is due where no stream lingers. A bell is believed for 1 s, twice as long with each unanswered one.
-- uses: owner_account
local BELL_MS = 1000
local function bell_due(name)           -- 1: the caller must send the bell, which counts as sent from here on
  local q = queue(name)
  local believed = BELL_MS * 2 ^ math.min(math.max(q.rings - 1, 0), 5)
  if q.bell > 0 and NOW >= q.bell and NOW - q.bell < believed then return 0 end
  q.bell, q.rings = NOW, q.rings + 1
  return 1
end
local function wake_lingerer(in_queue)  -- true: a live socket got the word. A dead one is passed over at once
  local lingering = R .. ':q:' .. in_queue .. ':lingering'
  for _ = 1, 16 do
    local stream = call('ZPOPMAX', lingering)
    if not stream[1] then return false end
    if tonumber(stream[2]) > NOW and call('PUBLISH', R .. ':q:' .. in_queue .. ':wake:' .. stream[1], 'work') > 0 then
      return true
    end
  end
  return false
end
local function ready() return call('ZCARD', Q .. 'online') + call('ZCARD', Q .. 'bulk') end
local function wake_if_ready()          -- for the end of scripts that leave work behind; they save sums after it
  return ready() > 0 and not wake_lingerer(QUEUE) and bell_due(QUEUE) or 0
end
