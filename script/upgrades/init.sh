#!/bin/busybox sh
# First process of both images: shows this machine's files, read-only, below a file system in memory, and goes on there.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo "TRIAL kernel $(cat /proc/cmdline)"
case "$(cat /proc/cmdline)" in *trial=panic*) echo c >/proc/sysrq-trigger ;; esac
for module in /modules/*.ko; do insmod "$module"; done
share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o ro,$share,cache=loose host /host
mount -t tmpfs tmpfs /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work root /new
for one in proc sys dev; do mount --move /$one /new/$one; done
mount -t tmpfs tmpfs /new/run
mkdir -p /new/run/trial /new/efi /new/persist
cp /bin/busybox /new/run/busybox
mount -t efivarfs efivarfs /new/sys/firmware/efi/efivars
mount -t 9p -o $share trial /new/run/trial
mount -t vfat /new/dev/vda1 /new/efi
mount -t ext4 /new/dev/vdb /new/persist
exec switch_root /new /run/busybox sh /run/trial/inside.sh
