-- Changes an ingestion if it is as expected.   own: id move   reply: {1 moved, the status now or ''}
-- uses: ingestions
allowed_when_full()
local moved, status = move_ingestion(ARGV[OWN], cjson.decode(ARGV[OWN + 1]))
return {moved and 1 or 0, status}
