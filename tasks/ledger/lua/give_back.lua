-- Gives back what a claim still holds.   own: token, blame ('1': its worker died of it, '0': nobody's fault)   reply: bell due
-- uses: lost_pieces wake_worker
allowed_when_full()
drop_claim(ARGV[OWN], ARGV[OWN + 1] == '1')
announce()
local bell = wake_if_ready()
save_sums()
return bell
