-- Pages that are done.   own: id first count   reply: JSON or '' for each of `count` pages
local out = {}
for page = tonumber(arg(2)), tonumber(arg(2)) + tonumber(arg(3)) - 1 do
  out[#out + 1] = call('HGET', R .. ':ingestion-closed:' .. arg(1), int(page)) or ''
end
return out
