-- Steps of the service's history.   own: first last   reply: {now in milliseconds, fields of each step...}
local out = {int(NOW)}
for step = tonumber(arg(1)), tonumber(arg(2)) do
  out[#out + 1] = call('HGETALL', R .. ':history:' .. int(step))
end
return out
