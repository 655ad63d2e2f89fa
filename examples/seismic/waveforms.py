"""Seismology, by ObsPy: making raw days of data, and what is made of each of them. Bytes in, bytes out.

A raw file is one day of one vertical channel as miniSEED, named as in an SDS archive
(YEAR/NET/STA/CHAN.D/NET.STA.LOC.CHAN.D.YEAR.DAY). It is noise by a seed, with the local earthquake that ObsPy ships as
its example (BW.RJOB, 2009-08-24) put into it, at times of the seed, later at some stations than at others.
"""

import csv
import io

import numpy
import obspy
from obspy.core import event
from obspy.signal.trigger import classic_sta_lta, trigger_onset

NETWORK, CHANNEL = "XX", "HHZ"
FIRST_DAY = obspy.UTCDateTime(2024, 5, 1)
EVENTS_PER_DAY = 8
NOISE_COUNTS = 300
# The band of local earthquakes, and windows for them.
BAND_HZ = (2.0, 20.0)
SHORT_S, LONG_S = 1.0, 30.0
TRIGGER_ON, TRIGGER_OFF = 6.0, 2.0
DECIMATION = 10
# An event is what so many stations see within so many seconds.
STATIONS_MIN, WITHIN_S = 3, 5.0


def station(number):
    return f"LD{number + 1:02}"


def raw_key(number, day):
    """The key of the raw file of a station and a day, both counted from 0."""
    date = FIRST_DAY + day * 86_400
    name = station(number)
    file = f"{NETWORK}.{name}..{CHANNEL}.D.{date.year}.{date.julday:03}"
    return f"raw/{date.year}/{NETWORK}/{name}/{CHANNEL}.D/{file}"


def result_keys(key):
    """The keys of the decimated waveform and of the picks of a raw file."""
    rest = key.removeprefix("raw/")
    return f"decimated/{rest}", f"picks/{rest}.csv"


def generated(number, day, seed, rate_hz, hours):
    """The raw file of a station and a day."""
    samples = int(rate_hz * hours * 3600)
    noise = numpy.random.default_rng([seed, 1, day, number])
    data = noise.standard_normal(samples, dtype=numpy.float32) * NOISE_COUNTS
    # The earth's own hum, of a few seconds' period.
    seconds = numpy.arange(samples, dtype=numpy.float32) / rate_hz
    data += 2_000 * numpy.sin(2 * numpy.pi * 0.16 * seconds + noise.uniform(0, 6)).astype(numpy.float32)
    shape = obspy.read()[0].detrend("demean")
    if shape.stats.sampling_rate != rate_hz:
        shape.interpolate(rate_hz)
    quakes = numpy.random.default_rng([seed, 2, day])
    for _ in range(EVENTS_PER_DAY):
        origin, size = quakes.uniform(0.02, 0.95), quakes.uniform(2, 10)
        at = int(origin * samples) + int(rate_hz * noise.uniform(0, WITHIN_S * 0.6))
        part = shape.data[: max(0, samples - at)]
        data[at : at + len(part)] += size * part.astype(numpy.float32)
    trace = obspy.Trace(numpy.rint(data).astype(numpy.int32))
    trace.stats.update({"network": NETWORK, "station": station(number), "channel": CHANNEL,
                        "sampling_rate": rate_hz, "starttime": FIRST_DAY + day * 86_400})
    return encoded(trace, "INT32")


def encoded(trace, encoding):
    buffer = io.BytesIO()
    trace.write(buffer, format="MSEED", encoding=encoding, reclen=4096)
    return buffer.getvalue()


def processed(body):
    """What is made of a raw file, read once: the decimated waveform as miniSEED, and the picks as CSV."""
    trace = obspy.read(io.BytesIO(body), format="MSEED")[0]
    trace.data = trace.data.astype(numpy.float64)
    trace.detrend("demean")
    band = trace.copy().filter("bandpass", freqmin=BAND_HZ[0], freqmax=BAND_HZ[1], corners=2)
    rate_hz = trace.stats.sampling_rate
    ratio = classic_sta_lta(band.data, int(SHORT_S * rate_hz), int(LONG_S * rate_hz))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["waveform", "time", "ratio"])
    for begin, end in trigger_onset(ratio, TRIGGER_ON, TRIGGER_OFF):
        at = trace.stats.starttime + begin / rate_hz
        writer.writerow([trace.id, at, f"{ratio[begin:end + 1].max():.3f}"])
    trace.decimate(DECIMATION)
    trace.data = numpy.rint(trace.data).astype(numpy.int32)
    return encoded(trace, "STEIM2"), table.getvalue().encode()


def catalogue(tables):
    """QuakeML of the events that several stations picked, from the picks of all raw files."""
    picks = []
    for table in tables:
        rows = csv.DictReader(io.StringIO(table.decode()))
        picks += [(obspy.UTCDateTime(row["time"]), row["waveform"]) for row in rows]
    picks.sort(key=lambda pick: (pick[0].ns, pick[1]))
    found = event.Catalog(resource_id=event.ResourceIdentifier("smi:local/catalogue"))
    found.creation_info = None
    at = 0
    while at < len(picks):
        together = [pick for pick in picks[at : at + 100] if pick[0] - picks[at][0] <= WITHIN_S]
        if len({name for _, name in together}) >= STATIONS_MIN:
            found.append(event_of(together, len(found)))
        at += len(together)
    buffer = io.BytesIO()
    found.write(buffer, format="QUAKEML")
    return buffer.getvalue(), len(found)


def event_of(picks, number):
    def named(kind, nth=0):
        return event.ResourceIdentifier(f"smi:local/{kind}/{number}/{nth}")

    origin = event.Origin(resource_id=named("origin"), time=picks[0][0], latitude=0.0, longitude=0.0)
    listed = [event.Pick(resource_id=named("pick", nth), time=at, waveform_id=event.WaveformStreamID(seed_string=name))
              for nth, (at, name) in enumerate(picks)]
    return event.Event(resource_id=named("event"), origins=[origin], picks=listed)
