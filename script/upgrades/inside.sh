# Runs in the machine: what a node does at boot, then the guardian, and orders that the host writes to the console.
mkdir /run/bin
/bin/busybox --install -s /run/bin
export PATH=/run/bin:/bin PYTHONPATH=/site PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8
slots=systemd-boot:/efi
if [ -e /efi/grub ]; then slots=grub:/efi/grub/grubenv; fi
cat >/run/config.yaml <<EOF
backend: kernel
watchdog: {device: /dev/watchdog, timeout: 15}
timer.test.baseimage.update: 60
timer.update.fallback.no.network: 120
EOF
slot=$(sed 's/.*kubeletx.slot=\([A-Z]*\).*/\1/' /proc/cmdline)
behaviour=$(sed -n 's/.*trial=\([a-z]*\).*/\1/p' /proc/cmdline)
dog=/sys/class/watchdog/watchdog0

# The disk's count of power cycles, as EVE's scripts write it; the host tells it as the serial number of the machine.
cd /persist
[ -e SMART_details.json ] && mv SMART_details.json SMART_details_previous.json
echo "{\"power_cycle_count\": $(cat /sys/class/dmi/id/product_serial)}" >SMART_details.json
sync

[ "$behaviour" = hang ] || echo "TRIAL ready $slot"
python -m kubeletx.health --run-dir /run --persist-dir /persist --slots "$slots" --tick 400ms \
    --config /run/config.yaml &

if [ "$behaviour" = hang ]; then
    # Nothing else runs on the only processor after the first tick, so nothing feeds the watchdog.
    until [ -e /run/nodeagent/HealthStatus/nodeagent.json ]; do usleep 100000; done
    echo "TRIAL hangs, watchdog $(cat $dog/state)"
    echo -1 >/proc/sys/kernel/sched_rt_runtime_us
    python -c 'import os
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
while True: pass'
fi

reach() {
    [ "$behaviour" = lost ] && return
    mkdir -p /run/zedagent/ZedAgentStatus
    echo '{"ConfigGetStatus": 1}' >/run/zedagent/.new
    mv /run/zedagent/.new /run/zedagent/ZedAgentStatus/zedagent.json
}

# install LABEL OPTIONS VERSION: what an installer of images does. OPTIONS: of the image's kernel.
install() {
    lower=$(echo "$1" | tr A-Z a-z)
    case "$slots" in
        systemd-boot*)
            for entry in /efi/loader/entries/kubeletx-*-"$lower"*.conf; do
                sed -i -e "s/^version .*/version $3/" -e "s/ trial=.*//" -e "/^options/s/\$/ trial=$2/" "$entry"
            done
            ;;
        grub*)
            echo "set options='trial=$2'" >"/efi/$lower/options.cfg"
            grub-editenv /efi/grub/grubenv set "kubeletx_$1_version=$3"
            ;;
    esac
    sync
    ask install "$1" --version "$3"
}

ask() { python -m kubeletx.health "$@" --run-dir /run; }

# Shows the states of both slots when nothing is left to do, or after a while.
show_slots() {
    for attempt in 0 1 2 3 4 5 6 7 8 9; do
        line=
        for label in IMGA IMGB; do
            line="$line $label=$(sed 's/.*"PartitionState":"\([a-z]*\)".*/\1/' /run/baseosmgr/ZbootStatus/$label.json)"
        done
        case "$line" in *active*active* | *updating*) ;; *active*) break ;; esac
        sleep 1
    done
    echo "TRIAL slots$line"
}

# Shows the watchdog when it would have reset the machine if nothing had fed it.
show_watchdog() {
    sleep "$(($(cat $dog/timeout) + 1))"
    echo "TRIAL watchdog $(cat $dog/state)"
}

while :; do
    reach
    usleep 500000
done &
while read -r line; do
    eval "$line"
done
