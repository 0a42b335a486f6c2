# Runs in the machine: what a node does at boot, then the guardian, and orders that the host writes into /run/trial.
bb=/run/busybox
. /run/trial/environment
slot=$($bb sed 's/.*kubeletx.slot=\([A-Z]*\).*/\1/' /proc/cmdline)
behaviour=$($bb sed -n 's/.*trial=\([a-z]*\).*/\1/p' /proc/cmdline)

# The disk's count of power cycles, which the host knows, and the status of the hardware watchdog: as EVE's scripts write them.
cd /persist
[ -e SMART_details.json ] && $bb mv SMART_details.json SMART_details_previous.json
echo "{\"power_cycle_count\": $($bb cat /run/trial/power)}" >SMART_details.json
status=$($bb cat /sys/class/watchdog/watchdog0/bootstatus)
if [ $((status & 32)) -ne 0 ]; then echo CARDRESET; fi >hw_watchdog_bootstatus
$bb sync
$bb watchdog -T 20 -t 4 /dev/watchdog

if [ "$behaviour" = hang ]; then
    # Nothing else runs on the only processor, so nothing feeds the watchdog.
    echo -1 >/proc/sys/kernel/sched_rt_runtime_us
    /usr/bin/chrt -f 99 $bb sh -c 'while :; do :; done'
fi

echo "TRIAL ready $slot" >/dev/console
cd "$repository"
$python -m kubeletx.health --run-dir /run --persist-dir /persist --slots "$slots" --tick "$tick" \
    --config /run/trial/config.yaml >/dev/console 2>&1 &

reach() {
    [ "$behaviour" = lost ] && return
    $bb mkdir -p /run/zedagent/ZedAgentStatus
    echo '{"ConfigGetStatus": 1}' >/run/zedagent/.new
    $bb mv /run/zedagent/.new /run/zedagent/ZedAgentStatus/zedagent.json
}

# install LABEL OPTIONS VERSION: what an installer of images does. OPTIONS: of the image's kernel.
install() {
    lower=$(echo "$1" | $bb tr A-Z a-z)
    case "$slots" in
        systemd-boot*)
            for entry in /efi/loader/entries/kubeletx-*-"$lower"*.conf; do
                $bb sed -i -e "s/^version .*/version $3/" -e "s/ trial=.*//" -e "/^options/s/\$/ trial=$2/" "$entry"
            done
            ;;
        grub*)
            echo "set options='trial=$2'" >"/efi/$lower/options.cfg"
            $grub_editenv /efi/grub/grubenv set "kubeletx_$1_version=$3"
            ;;
    esac
    $bb sync
    ask install "$1" --version "$3"
}

ask() { $python -m kubeletx.health "$@" --run-dir /run; }

# Shows the states of both slots when nothing is left to do, or after a while.
show_slots() {
    for attempt in 0 1 2 3 4 5 6 7 8 9; do
        line=
        for label in IMGA IMGB; do
            line="$line $label=$($bb sed 's/.*"PartitionState":"\([a-z]*\)".*/\1/' /run/baseosmgr/ZbootStatus/$label.json)"
        done
        case "$line" in *active*active* | *updating*) ;; *active*) break ;; esac
        reach
        $bb sleep 1
    done
    echo "TRIAL slots$line"
}

reach
while :; do
    reach
    if [ -e /run/trial/order ]; then
        $bb mv /run/trial/order /run/trial/taken
        { . /run/trial/taken; } >/dev/console 2>&1
        $bb mv /run/trial/taken /run/trial/done
    fi
    $bb usleep 300000
done
