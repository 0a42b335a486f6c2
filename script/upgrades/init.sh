#!/bin/busybox sh
# First process of both images: goes on in the read-only root file system.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo "TRIAL kernel $(cat /proc/cmdline)"
case "$(cat /proc/cmdline)" in *trial=panic*) echo c >/proc/sysrq-trigger ;; esac
for module in /modules/*.ko; do insmod "$module"; done
mount -t ext4 -o ro /dev/vdc /new
for one in proc sys dev; do mount --move /$one /new/$one; done
mount -t tmpfs tmpfs /new/run
mount -t tmpfs tmpfs /new/tmp
mount -t efivarfs efivarfs /new/sys/firmware/efi/efivars
mount -t vfat /new/dev/vda1 /new/efi
mount -t ext4 /new/dev/vdb /new/persist
exec switch_root /new /bin/busybox sh /inside.sh
