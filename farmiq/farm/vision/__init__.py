"""Weights from images: mask, shape, quality, estimate, model, training, drift; all of it pure.

image bytes --> frames.measure --> Measurement --> estimate.estimate --> Estimate
closed sessions --> training.train --> Trained --> training.decide --> model.save --> model.load

Only frames, mask and shape load OpenCV, only model loads ONNX: a process that does not decode
images needs neither.
"""
