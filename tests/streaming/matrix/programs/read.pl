# Reads lines, then blocks, then asks for the size: read.pl IN OUT
use strict; use warnings;
my ($path, $target) = @ARGV;
die "missing" unless -e $path;
open(my $in, '<', $path) or die "$path: $!";
open(my $out, '>', $target) or die "$target: $!";
for (1 .. 60) { my $line = <$in>; last unless defined $line; print $out $line; }
my $block; my $total = 0;
while (my $got = read($in, $block, 1237)) { print $out $block; $total += $got; }
print $out "\n$total eof ", (eof($in) ? 1 : 0), " size ", (-s $path), "\n";
close($out) or die $!;
