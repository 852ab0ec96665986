-- Notes what one process of the web tier counted in a step of the service's history.
-- own: step process counts shared ttl   reply: now in milliseconds
-- shared: figures that every process sees alike, or ''; the last one holds. A full Redis refuses the step.
local key = R .. ':history:' .. arg(1)
call('HSET', key, 'p:' .. arg(2), arg(3))
if arg(4) ~= '' then call('HSET', key, 'shared', arg(4)) end
call('PEXPIRE', key, arg(5))
return int(NOW)
