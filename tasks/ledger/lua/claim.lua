-- Takes units of one lane under a lease, or registers the worker as lingering, in one step.
-- own: those of `claim` in shared/claiming.lua
-- reply: {'changed'}: the worker's model is no longer served; or
--   {bell due, wait_ms, more, lane, suspects wait,
--    {id, unit, first, items, cost, attempts, offset, options, payload, trace, owner}...}
-- uses: claiming ending
local out = claim(unpack(ARGV, FIRST + 1))
if (out[2] or 0) > 0 then asks() end
settled()
announce()
return out
