-- What the sweep will look at: "name owner" of a stored object or of the folder of a job -> not before when. Nothing that
-- cannot be taken back follows from a state that can: a Redis that goes back by less than GRACE_MS has lost no object.
local GRACE_MS = 60000
local function litter(entry, at) call('ZADD', R .. ':litter', at + GRACE_MS, entry) end
local function no_litter(entry) call('ZREM', R .. ':litter', entry) end
