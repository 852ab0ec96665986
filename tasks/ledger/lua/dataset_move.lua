-- Moves a dataset to its next catalog, if nobody else has moved it since.
-- own: owner name expected_version version catalog   (expected 0: there is none yet)   reply: 1 moved, 0 somebody else did
local key = R .. ':dataset:' .. arg(1) .. ':' .. arg(2)
local known = call('HMGET', key, 'version', 'catalog')
if known[2] == arg(5) then return 1 end -- this very call, again
if tonumber(known[1] or 0) ~= tonumber(arg(3)) then return 0 end
call('HSET', key, 'version', arg(4), 'catalog', arg(5))
return 1
