#!/bin/sh
# Prints the agent's DNS flags from a pod's resolv.conf: pods of the trial ask whom this pod was told to ask.
set -eu
servers=$(sed -n 's/^nameserver[[:space:]]\{1,\}\([^[:space:]]*\).*/\1/p' "$1" | paste -sd, -)
domain=$(sed -n 's/^search[[:space:]]\{1,\}[^[:space:]]*\.svc\.\([^[:space:]]*\).*/\1/p' "$1" | head -n 1)
if [ -n "$servers" ] && [ -n "$domain" ]; then
    echo "--cluster-dns=$servers --cluster-domain=$domain"
fi
