-- Takes units of one lane under a lease, or registers the worker as lingering, in one step.
-- own: those of `claim` in shared/claiming.lua
-- reply: {'changed'}: the worker's model is no longer served; or
--   {bell due, wait_ms, more, lane, suspects wait,
--    {id, unit, first, items, cost, attempts, offset, options, payload, trace, owner}...}
-- uses: claiming ending wakeup
local request = {unpack(ARGV, FIRST + 1)}
local out = claim(unpack(request))
if (out[2] or 0) > 0 then asks(request[1], request) end
settled()
announce()
return out
