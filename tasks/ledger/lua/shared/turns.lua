-- Turns: owners take turns by cost, and so do the tasks of one owner. Here are the lanes, and the line of suspects.
--
-- Self-clocked fair queueing: a task's tag is the virtual time plus the cost of its next unit, an owner's pass is the
-- cost it has been served. The lowest goes first; virtual time is the tag (pass) of the last one served. An owner's
-- pass is remembered, so that many short tasks cannot overtake one long task for ever.
-- Texts whose worker died are in no lane: they run alone, and whoever could not take one would stop at the first (40 of
-- them blocked the online lane for half a minute). They wait in a line of their own, 'suspects', in which owners and
-- tasks take turns in the same way.

local UNWANTED_MS = 10000   -- a waiter keeps the end of its task further away than this (LINGERING_INTEREST_S)

local function turn_fields(lane, owner)
  return 'tvt_' .. lane .. ':' .. owner, 'pass_' .. lane .. ':' .. owner, 'vt_' .. lane
end
local function enter_lane(id, lane, owner, cost, turn)  -- turn: the values of these, where they have been read
  local v = turn or call('HMGET', S, turn_fields(lane, owner))
  call('ZADD', owner_key(lane, owner), 'NX', int(tonumber(v[1] or 0) + cost), id)
  if turn and turn.owner_is_there then return end  -- he has entered with another task of this turn
  call('ZADD', lane_key(lane), 'NX', int(math.max(tonumber(v[2] or 0), tonumber(v[3] or 0))), owner)
  if turn then turn.owner_is_there = true end
end
local function leave_lane(id, lane, owner)
  call('ZREM', owner_key(lane, owner), id)
  if call('EXISTS', owner_key(lane, owner)) == 0 then call('ZREM', lane_key(lane), owner) end
end
local function ready()
  return call('ZCARD', lane_key('online')) + call('ZCARD', lane_key('bulk')) + call('ZCARD', lane_key('suspects'))
end
